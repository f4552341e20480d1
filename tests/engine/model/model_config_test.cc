// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model_config.h"

#include <nlohmann/json.hpp>

#include "tests/engine/model/model_files.h"
#include "tests/support/golden.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::sparsed::testing::IsOk;
using ::sparsed::testing::StatusIs;
using ::sparsed::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

// The fields without which there is no model.
Json SmallConfig() {
  return Json::parse(R"({
      "model_type": "llada", "block_type": "llama", "layer_norm_type": "rms",
      "activation_type": "silu", "rope": true, "d_model": 64, "n_heads": 8, "n_layers": 2,
      "mlp_hidden_size": 96, "vocab_size": 500, "max_sequence_length": 1024, "rope_theta": 10000,
      "rms_norm_eps": 1e-5, "mask_token_id": 499})");
}

class ModelConfigTest : public ::testing::Test {
 protected:
  absl::StatusOr<ModelConfig> LoadText(std::string_view text) {
    dir_.Write("config.json", text);
    return LoadModelConfig(dir_.path());
  }
  // SmallConfig with some fields replaced.
  absl::StatusOr<ModelConfig> Load(const Json& changes) {
    Json config = SmallConfig();
    config.update(changes);
    return LoadText(config.dump());
  }
  absl::StatusOr<ModelConfig> LoadWithGeneration(std::string_view generation) {
    dir_.Write("generation_config.json", generation);
    return Load({{"eos_token_id", 7}});
  }
  std::string config_path() const { return dir_.path() + "/config.json"; }

  const TempDir dir_;
};

TEST_F(ModelConfigTest, DemoModelIsUnderstood) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config,
                       LoadModelConfig(SPARSED_SOURCE_DIR "/models/demo-llada-17m"));
  EXPECT_EQ(config.family, "llada");
  EXPECT_EQ(config.layers, 8);
  EXPECT_EQ(config.hidden_size, 384);
  EXPECT_EQ(config.heads, 6);
  EXPECT_EQ(config.kv_heads, 6);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.mlp_size, 1024);
  EXPECT_EQ(config.vocabulary_size, 4096);
  EXPECT_EQ(config.embedding_rows, 4096);
  EXPECT_EQ(config.max_length, 4096);
  EXPECT_EQ(config.rope_theta, 500000);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.mask_token, 2);
  EXPECT_EQ(config.pad_token, 1);
  EXPECT_THAT(config.end_tokens, ElementsAre(1));
  EXPECT_EQ(config.generation.gen_length, 128);
  EXPECT_EQ(config.generation.steps, 128);
  EXPECT_EQ(config.generation.block_length, 32);
  EXPECT_EQ(config.generation.temperature, 0);
}

TEST_F(ModelConfigTest, GoldenModelsDifferInHeadsAndTying) {
  struct Expected {
    const char* name;
    int32_t kv_heads;
    bool tied;
  };
  for (const Expected& expected : {Expected{"llada-tiny", 4, false},
                                   {"llada-tiny-gqa", 2, false},
                                   {"llada-tiny-mqa-tied", 1, true}}) {
    GOLDEN_OR_SKIP(dir, expected.name);
    ASSERT_OK_AND_ASSIGN(const ModelConfig config, LoadModelConfig(dir.string()));
    EXPECT_EQ(config.kv_heads, expected.kv_heads) << expected.name;
    EXPECT_EQ(config.tied_embeddings, expected.tied) << expected.name;
    EXPECT_EQ(config.mask_token, 500);
    EXPECT_THAT(config.end_tokens, ElementsAre(481));
  }
}

TEST_F(ModelConfigTest, OtherFamiliesAreNamedWithTheSupportedOnes) {
  EXPECT_THAT(
      Load({{"model_type", "Dream"}}),
      StatusIs(kUnimplemented,
               config_path() + ": model_type is \"Dream\": supported model families: llada"));
  EXPECT_THAT(Load({{"model_type", 7}}), StatusIs(kInvalid, HasSubstr("model_type is 7")));
  EXPECT_THAT(LoadText("{}"), StatusIs(kInvalid, HasSubstr("model_type is absent")));
}

TEST_F(ModelConfigTest, GoldenDreamAndWanAreRefused) {
  GOLDEN_OR_SKIP(dream, "dream-tiny");
  EXPECT_THAT(LoadModelConfig(dream.string()), StatusIs(kUnimplemented, HasSubstr("\"Dream\"")));
  GOLDEN_OR_SKIP(wan, "wan-tiny");
  EXPECT_THAT(LoadModelConfig(wan.string()), StatusIs(kUnimplemented, HasSubstr("\"t2v\"")));
}

TEST_F(ModelConfigTest, AbsentFieldsFollowFromOthers) {
  Json json = SmallConfig();
  json.erase("mlp_hidden_size");
  json["mlp_ratio"] = 3;
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, LoadText(json.dump()));
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.mlp_size, 192);
  EXPECT_EQ(config.embedding_rows, 500);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.pad_token, std::nullopt);
  EXPECT_THAT(config.end_tokens, IsEmpty());
}

TEST_F(ModelConfigTest, NullMeansAbsent) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, Load({{"n_kv_heads", nullptr},
                                                       {"mlp_hidden_size", nullptr},
                                                       {"mlp_ratio", 4},
                                                       {"embedding_size", nullptr},
                                                       {"pad_token_id", nullptr},
                                                       {"eos_token_id", nullptr},
                                                       {"alibi", nullptr}}));
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.mlp_size, 256);
  EXPECT_EQ(config.embedding_rows, 500);
}

TEST_F(ModelConfigTest, KvHeadsComeFromEitherField) {
  const auto kv_heads = [this](const Json& changes) {
    const absl::StatusOr<ModelConfig> config = Load(changes);
    EXPECT_THAT(config, IsOk());
    return config.ok() ? config->kv_heads : -1;
  };
  EXPECT_EQ(kv_heads({{"n_kv_heads", 2}}), 2);
  EXPECT_EQ(kv_heads({{"multi_query_attention", true}}), 1);
  EXPECT_EQ(kv_heads({{"multi_query_attention", false}}), 8);
  EXPECT_EQ(kv_heads({{"multi_query_attention", true}, {"n_kv_heads", 1}}), 1);
  for (const bool single : {true, false}) {
    EXPECT_THAT(Load({{"multi_query_attention", single}, {"n_kv_heads", 2}}),
                StatusIs(kInvalid, HasSubstr("contradicts n_kv_heads 2")));
  }
}

TEST_F(ModelConfigTest, EndTokensOfBothFilesAreJoinedOnce) {
  dir_.Write("generation_config.json", R"({"eos_token_id": [9, 7, 3]})");
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, Load({{"eos_token_id", {7, 8, 7}}}));
  EXPECT_THAT(config.end_tokens, ElementsAre(7, 8, 9, 3));
}

TEST_F(ModelConfigTest, GenerationDefaultsWithoutAFile) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, Load(Json::object()));
  EXPECT_EQ(config.generation.gen_length, 128);
  EXPECT_EQ(config.generation.steps, 128);
  EXPECT_EQ(config.generation.block_length, 32);
  EXPECT_EQ(config.generation.temperature, 0);
}

TEST_F(ModelConfigTest, GenerationConfigOverridesDefaults) {
  ASSERT_OK_AND_ASSIGN(
      const ModelConfig config,
      LoadWithGeneration(
          R"({"gen_length": 64, "steps": 8, "block_length": 16, "temperature": 0.5})"));
  EXPECT_EQ(config.generation.gen_length, 64);
  EXPECT_EQ(config.generation.steps, 8);
  EXPECT_EQ(config.generation.block_length, 16);
  EXPECT_EQ(config.generation.temperature, 0.5);
}

TEST_F(ModelConfigTest, AbsentGenerationDefaultsFitTheGivenOnes) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig short_text, LoadWithGeneration(R"({"gen_length": 100})"));
  EXPECT_EQ(short_text.generation.block_length, 25);  // the largest divisor of 100 up to 32
  EXPECT_EQ(short_text.generation.steps, 100);
  ASSERT_OK_AND_ASSIGN(const ModelConfig small_blocks,
                       LoadWithGeneration(R"({"gen_length": 300, "block_length": 2})"));
  EXPECT_EQ(small_blocks.generation.steps, 150);  // one step for each block at least
  dir_.Write("generation_config.json", "{}");
  ASSERT_OK_AND_ASSIGN(const ModelConfig short_context, Load({{"max_sequence_length", 50}}));
  EXPECT_EQ(short_context.generation.gen_length, 50);
  EXPECT_EQ(short_context.generation.block_length, 25);
}

TEST_F(ModelConfigTest, MissingConfigIsNotFound) {
  EXPECT_THAT(LoadModelConfig(dir_.path()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(config_path())));
}

TEST_F(ModelConfigTest, BrokenFilesNameTheFile) {
  for (const std::string_view text : {"", "[]", "{", "not JSON", "{\"model_type\": \"\xff\"}"}) {
    EXPECT_THAT(LoadText(text), StatusIs(kInvalid, HasSubstr(config_path()))) << text;
  }
  const std::string deep = "{\"a\":" + std::string(17, '[') + std::string(17, ']') + "}";
  EXPECT_THAT(LoadText(deep), StatusIs(kInvalid, HasSubstr("nested deeper than 16")));
  EXPECT_THAT(LoadText(std::string((1 << 20) + 1, ' ')),
              StatusIs(kInvalid, HasSubstr("must be at most 1048576")));
  EXPECT_THAT(LoadWithGeneration("{"),
              StatusIs(kInvalid, HasSubstr(dir_.path() + "/generation_config.json")));
}

TEST_F(ModelConfigTest, NanAndInfinityNameTheField) {
  for (const std::string_view value : {"NaN", "Infinity", "-Infinity", "1e999"}) {
    std::string text = SmallConfig().dump();
    text.replace(text.find("\"rope_theta\":10000"), 18, "\"rope_theta\":" + std::string(value));
    EXPECT_THAT(LoadText(text),
                StatusIs(kInvalid, AllOf(HasSubstr(config_path()), HasSubstr("rope_theta"))));
  }
}

struct BadField {
  std::string field;
  std::string value;  // JSON; "" removes the field
  std::string limit;
};
void PrintTo(const BadField& bad, std::ostream* out) { *out << bad.field << " = " << bad.value; }

std::string Expected(const std::string& path, const BadField& bad) {
  return path + ": " + bad.field + " is " + (bad.value.empty() ? "absent" : bad.value) + ": " +
         bad.limit;
}

class HostileConfigTest : public ModelConfigTest, public ::testing::WithParamInterface<BadField> {};

TEST_P(HostileConfigTest, NamesFileFieldValueAndLimit) {
  Json config = SmallConfig();
  config.erase(GetParam().field);
  if (!GetParam().value.empty()) config[GetParam().field] = Json::parse(GetParam().value);
  EXPECT_THAT(LoadText(config.dump()), StatusIs(kInvalid, Expected(config_path(), GetParam())));
}

constexpr char kHeadsLimit[] = "must be an integer in 1..65536";
constexpr char kMaskLimit[] = "must be an integer in 0..499";
constexpr char kEosLimit[] = "must be an integer in 0..499, or a list of such";
constexpr char kThetaLimit[] = "must be a number in 1..1e+12";

INSTANTIATE_TEST_SUITE_P(
    Values, HostileConfigTest,
    ::testing::Values(
        BadField{"d_model", "", kHeadsLimit}, BadField{"d_model", "null", kHeadsLimit},
        BadField{"d_model", "0", kHeadsLimit}, BadField{"d_model", "-64", kHeadsLimit},
        BadField{"d_model", "65537", kHeadsLimit}, BadField{"d_model", "64.0", kHeadsLimit},
        BadField{"d_model", "true", kHeadsLimit}, BadField{"d_model", "\"64\"", kHeadsLimit},
        BadField{"d_model", "[64]", kHeadsLimit},
        // 2^32 + 64: cut to 32 bits it would be 64.
        BadField{"d_model", "4294967360", kHeadsLimit},
        BadField{"d_model", "9223372036854775808", kHeadsLimit},
        BadField{"d_model", "18446744073709551615", kHeadsLimit},
        BadField{"n_heads", "0", kHeadsLimit}, BadField{"n_heads", "3", "must divide d_model 64"},
        BadField{"n_heads", "64", "d_model / n_heads is 1, must be even for rotary positions"},
        BadField{"n_kv_heads", "3", "must divide n_heads 8"},
        BadField{"n_kv_heads", "0", "must be an integer in 1..8"},
        BadField{"n_kv_heads", "16", "must be an integer in 1..8"},
        BadField{"multi_query_attention", "1", "must be true or false"},
        BadField{"n_layers", "", "must be an integer in 1..1024"},
        BadField{"n_layers", "1025", "must be an integer in 1..1024"},
        BadField{"mlp_hidden_size", "0", "must be an integer in 1..1048576"},
        BadField{"vocab_size", "4194305", "must be an integer in 1..4194304"},
        BadField{"vocab_size", "-1", "must be an integer in 1..4194304"},
        BadField{"embedding_size", "499", "must be an integer in 500..4194304"},
        BadField{"max_sequence_length", "", "must be an integer in 1..16777216"},
        BadField{"max_sequence_length", "0", "must be an integer in 1..16777216"},
        BadField{"rope_theta", "", kThetaLimit}, BadField{"rope_theta", "0", kThetaLimit},
        BadField{"rope_theta", "-1.5", kThetaLimit}, BadField{"rope_theta", "1e+300", kThetaLimit},
        BadField{"rope_theta", "\"1e4\"", kThetaLimit},
        BadField{"rms_norm_eps", "0", "must be a number in 1e-12..0.1"},
        BadField{"rms_norm_eps", "-1e-05", "must be a number in 1e-12..0.1"},
        BadField{"weight_tying", "\"yes\"", "must be true or false"},
        BadField{"mask_token_id", "", kMaskLimit}, BadField{"mask_token_id", "null", kMaskLimit},
        BadField{"mask_token_id", "500", kMaskLimit}, BadField{"mask_token_id", "-1", kMaskLimit},
        BadField{"pad_token_id", "500", "must be an integer in -1..499"},
        // 2^64 - 1 is -1 when read as a signed number.
        BadField{"pad_token_id", "18446744073709551615", "must be an integer in -1..499"},
        BadField{"eos_token_id", "500", kEosLimit}, BadField{"eos_token_id", "[1,-1]", kEosLimit},
        BadField{"eos_token_id", "\"</s>\"", kEosLimit},
        BadField{"eos_token_id", "[[1]]", kEosLimit},
        BadField{"eos_token_id", "[1,499]", "must not be mask_token_id 499"},
        // A setting's wrong type is an error of the file, not a missing feature.
        BadField{"alibi", "\"no\"", "only false is implemented"},
        BadField{"block_type", "", "only \"llama\" is implemented"},
        BadField{"rope", "", "only true is implemented"}));

TEST_F(ModelConfigTest, MlpRatioIsLimited) {
  const auto load = [this](int d_model, int ratio) {
    return Load({{"mlp_hidden_size", nullptr}, {"mlp_ratio", ratio}, {"d_model", d_model}});
  };
  EXPECT_THAT(load(64, 0), StatusIs(kInvalid, HasSubstr("mlp_ratio is 0: must be an integer in")));
  EXPECT_THAT(load(65536, 64),
              StatusIs(kInvalid, HasSubstr("times d_model 65536 must be at most")));
  EXPECT_THAT(Load({{"mlp_hidden_size", nullptr}}),
              StatusIs(kInvalid, HasSubstr("mlp_ratio is absent")));
}

class UnimplementedSettingTest : public ModelConfigTest,
                                 public ::testing::WithParamInterface<BadField> {};

TEST_P(UnimplementedSettingTest, IsRefusedByNameAndValue) {
  EXPECT_THAT(Load({{GetParam().field, Json::parse(GetParam().value)}}),
              StatusIs(kUnimplemented, Expected(config_path(), GetParam())));
}

INSTANTIATE_TEST_SUITE_P(
    Settings, UnimplementedSettingTest,
    ::testing::Values(BadField{"block_type", "\"sequential\"", "only \"llama\" is implemented"},
                      BadField{"layer_norm_type", "\"default\"", "only \"rms\" is implemented"},
                      BadField{"activation_type", "\"gelu\"", "only \"silu\" is implemented"},
                      BadField{"activation_type", "\"swiglu\"", "only \"silu\" is implemented"},
                      BadField{"rope", "false", "only true is implemented"},
                      BadField{"rope_scaling", R"({"factor":2.0})", "only null is implemented"},
                      BadField{"alibi", "true", "only false is implemented"},
                      BadField{"attention_layer_norm", "true", "only false is implemented"},
                      BadField{"include_bias", "true", "only false is implemented"},
                      BadField{"include_qkv_bias", "true", "only false is implemented"},
                      BadField{"bias_for_layer_norm", "true", "only false is implemented"},
                      BadField{"layer_norm_with_affine", "false", "only true is implemented"},
                      BadField{"input_emb_norm", "true", "only false is implemented"},
                      BadField{"scale_logits", "true", "only false is implemented"},
                      BadField{"block_group_size", "2", "only 1 is implemented"},
                      BadField{"clip_qkv", "8.0", "only null is implemented"},
                      BadField{"quantization_config", R"({"bits":4})",
                               "only null is implemented"}));

class HostileGenerationTest : public ModelConfigTest,
                              public ::testing::WithParamInterface<BadField> {};

TEST_P(HostileGenerationTest, NamesFileFieldValueAndLimit) {
  EXPECT_THAT(LoadWithGeneration("{\"" + GetParam().field + "\":" + GetParam().value + "}"),
              StatusIs(kInvalid, Expected(dir_.path() + "/generation_config.json", GetParam())));
}

INSTANTIATE_TEST_SUITE_P(
    Values, HostileGenerationTest,
    ::testing::Values(BadField{"gen_length", "0", "must be an integer in 1..1024"},
                      BadField{"gen_length", "1025", "must be an integer in 1..1024"},
                      BadField{"steps", "129", "must be an integer in 1..128"},
                      BadField{"steps", "6", "must be a multiple of gen_length / block_length = 4"},
                      BadField{"block_length", "\"32\"", "must be an integer in 1..128"},
                      BadField{"block_length", "48", "must divide gen_length 128"},
                      BadField{"temperature", "-0.5", "must be a number in 0..10"},
                      BadField{"temperature", "11", "must be a number in 0..10"},
                      BadField{"temperature", "[1]", "must be a number in 0..10"},
                      BadField{"eos_token_id", "500", kEosLimit},
                      BadField{"eos_token_id", "499", "must not be mask_token_id 499"}));

}  // namespace
}  // namespace sparsed
