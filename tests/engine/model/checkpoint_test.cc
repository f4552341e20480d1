// SPDX-License-Identifier: Apache-2.0
#include "engine/model/checkpoint.h"

#include "engine/model/model_config.h"
#include "tests/engine/model/model_files.h"
#include "tests/support/golden.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::sparsed::testing::IsOk;
using ::sparsed::testing::Safetensors;
using ::sparsed::testing::StatusIs;
using ::sparsed::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kNotFound = absl::StatusCode::kNotFound;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

// A file with one tensor of two rows and one column.
std::string OneTensor(const std::string& name, const std::string& dtype, size_t element_bytes) {
  const std::string bytes = std::to_string(2 * element_bytes);
  return Safetensors("{\"" + name + "\":{\"dtype\":\"" + dtype +
                         "\",\"shape\":[2,1],\"data_offsets\":[0," + bytes + "]}}",
                     std::string(2 * element_bytes, '\0'));
}

class CheckpointTest : public ::testing::Test {
 protected:
  absl::StatusOr<Checkpoint> Open() { return Checkpoint::Open(dir_.path()); }
  void WriteIndex(std::string_view weight_map) {
    dir_.Write("model.safetensors.index.json",
               "{\"metadata\":{\"total_size\":1},\"weight_map\":" + std::string(weight_map) + "}");
  }
  std::string index() const { return dir_.File("model.safetensors.index.json"); }

  const TempDir dir_;
};

TEST_F(CheckpointTest, OpensASingleFile) {
  const std::string path = dir_.Write("model.safetensors", OneTensor("a", "F16", 2));
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  ASSERT_OK_AND_ASSIGN(const TensorView view, checkpoint.Require("a", {2, 1}));
  EXPECT_EQ(view.dtype, DType::kF16);
  EXPECT_EQ(checkpoint.FileOf("a"), path);
  EXPECT_EQ(checkpoint.FileOf("b"), "");
  EXPECT_EQ(checkpoint.Find("b"), nullptr);
  EXPECT_EQ(checkpoint.total_bytes(), 4);
  EXPECT_EQ(checkpoint.tensor_count(), 1);
}

TEST_F(CheckpointTest, OpensShardsAndIgnoresWhatTheIndexPlacesElsewhere) {
  dir_.Write("1.safetensors", OneTensor("a", "F32", 4));
  const std::string second = dir_.Write(
      "2.safetensors", Safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                                       "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},
                                       "c":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                                   std::string(12, '\0')));
  WriteIndex(R"({"a":"1.safetensors","b":"2.safetensors"})");
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_THAT(checkpoint.Require("a", {2, 1}), IsOk());
  EXPECT_EQ(checkpoint.FileOf("b"), second);
  EXPECT_EQ(checkpoint.total_bytes(), 12);
  EXPECT_EQ(checkpoint.Find("c"), nullptr);
  EXPECT_THAT(checkpoint.Unknown({"a", "b", "c"}), ElementsAre("a", "c"));
  EXPECT_THAT(checkpoint.Unknown({"a"}), ElementsAre("a", "b", "c"));
}

TEST_F(CheckpointTest, ViewsOutliveTheCheckpoint) {
  dir_.Write("model.safetensors", OneTensor("a", "F32", 4));
  TensorView view;
  {
    ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
    view = *checkpoint.Find("a");
  }
  EXPECT_EQ(view.data[7], std::byte{0});
}

TEST_F(CheckpointTest, FolderWithoutWeightsIsNotFound) {
  EXPECT_THAT(Open(), StatusIs(kNotFound, dir_.path() + ": has neither model.safetensors nor "
                                                        "model.safetensors.index.json"));
  EXPECT_THAT(Checkpoint::Open("/nowhere"), StatusIs(kNotFound, HasSubstr("/nowhere")));
}

TEST_F(CheckpointTest, MissingTensorNamesTensorAndFile) {
  const std::string path = dir_.Write("model.safetensors", OneTensor("a", "F32", 4));
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_THAT(checkpoint.Require("b", {7, 8}),
              StatusIs(kNotFound, path + ": tensor b: is missing, expected shape [7,8]"));
}

TEST_F(CheckpointTest, WrongShapeNamesTensorFileExpectedAndFound) {
  const std::string path = dir_.Write("model.safetensors", OneTensor("a", "F32", 4));
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
  EXPECT_THAT(checkpoint.Require("a", {1, 2}),
              StatusIs(kInvalid, path + ": tensor a: shape is [2,1]: expected [1,2]"));
  EXPECT_THAT(checkpoint.Require("a", {2}), StatusIs(kInvalid, HasSubstr("expected [2]")));
}

TEST_F(CheckpointTest, WeightsAreF32F16OrBF16) {
  for (const auto& [dtype, bytes] : {std::pair{"F32", 4}, {"F16", 2}, {"BF16", 2}}) {
    dir_.Write("model.safetensors", OneTensor("a", dtype, static_cast<size_t>(bytes)));
    ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
    EXPECT_THAT(checkpoint.Require("a", {2, 1}), IsOk());
  }
  for (const auto& [dtype, bytes] : {std::pair{"F64", 8}, {"I8", 1}, {"BOOL", 1}, {"U32", 4}}) {
    const std::string path =
        dir_.Write("model.safetensors", OneTensor("a", dtype, static_cast<size_t>(bytes)));
    ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Open());
    EXPECT_THAT(checkpoint.Require("a", {2, 1}),
                StatusIs(kInvalid, path + ": tensor a: dtype is " + dtype +
                                       ": must be one of F32, F16, BF16"));
  }
}

TEST_F(CheckpointTest, MissingShardIsNotFound) {
  WriteIndex(R"({"a":"1.safetensors"})");
  EXPECT_THAT(Open(), StatusIs(kNotFound, HasSubstr(dir_.File("1.safetensors"))));
}

TEST_F(CheckpointTest, TensorThatItsShardLacksIsDataLoss) {
  const std::string shard = dir_.Write("1.safetensors", OneTensor("a", "F32", 4));
  WriteIndex(R"({"a":"1.safetensors","b":"1.safetensors"})");
  EXPECT_THAT(Open(), StatusIs(kDataLoss, AllOf(HasSubstr(shard + ": tensor b: is missing"),
                                                HasSubstr(index()))));
}

TEST_F(CheckpointTest, TruncatedShardIsDataLoss) {
  const std::string whole = OneTensor("a", "F32", 4);
  const std::string shard = dir_.Write("1.safetensors", whole.substr(0, whole.size() - 1));
  WriteIndex(R"({"a":"1.safetensors"})");
  EXPECT_THAT(Open(), StatusIs(kDataLoss, HasSubstr(shard + ": truncated")));
}

TEST_F(CheckpointTest, ShardsStayInTheFolder) {
  const TempDir elsewhere;
  const std::string outside = elsewhere.Write("1.safetensors", OneTensor("a", "F32", 4));
  for (const std::string& shard :
       {outside, std::string("../1.safetensors"), std::string("sub/1.safetensors"),
        std::string("..\\\\1.safetensors"), std::string(".."), std::string("."), std::string(),
        std::string("1.safetensors\\u0000")}) {
    WriteIndex("{\"a\":\"" + shard + "\"}");
    EXPECT_THAT(Open(), StatusIs(kInvalid, AllOf(HasSubstr(index() + ": weight_map of tensor a is"),
                                                 HasSubstr("must be the plain name of a file"))));
  }
}

TEST_F(CheckpointTest, BrokenIndexIsInvalid) {
  for (const std::string_view map : {"7", "[]", "{}", "{\"a\":7}", "{\"a\":null}", "{\"a\":"}) {
    WriteIndex(map);
    EXPECT_THAT(Open(), StatusIs(kInvalid, HasSubstr(index()))) << map;
  }
  dir_.Write("model.safetensors.index.json", "{}");
  EXPECT_THAT(Open(), StatusIs(kInvalid, HasSubstr("weight_map")));
}

// A LLaDA folder has the tensors that its config.json implies, and no others.
void ExpectLladaTensors(const std::string& dir) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, LoadModelConfig(dir));
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, Checkpoint::Open(dir));
  const int64_t width = config.hidden_size;
  const int64_t kv_width = int64_t{config.kv_heads} * config.head_dim;
  absl::flat_hash_set<std::string> known;
  int64_t bytes = 0;
  const auto expect = [&](const std::string& name, std::vector<int64_t> shape) {
    ASSERT_OK_AND_ASSIGN(const TensorView view, checkpoint.Require(name, shape));
    known.insert(name);
    bytes += static_cast<int64_t>(view.bytes);
  };
  expect("model.transformer.wte.weight", {config.embedding_rows, width});
  expect("model.transformer.ln_f.weight", {width});
  if (!config.tied_embeddings) {
    expect("model.transformer.ff_out.weight", {config.embedding_rows, width});
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string block = "model.transformer.blocks." + std::to_string(layer) + ".";
    expect(block + "attn_norm.weight", {width});
    expect(block + "ff_norm.weight", {width});
    expect(block + "q_proj.weight", {width, width});
    expect(block + "k_proj.weight", {kv_width, width});
    expect(block + "v_proj.weight", {kv_width, width});
    expect(block + "attn_out.weight", {width, width});
    expect(block + "ff_proj.weight", {config.mlp_size, width});
    expect(block + "up_proj.weight", {config.mlp_size, width});
    expect(block + "ff_out.weight", {width, config.mlp_size});
  }
  EXPECT_THAT(checkpoint.Unknown(known), IsEmpty());
  EXPECT_EQ(checkpoint.total_bytes(), bytes);
}

TEST(CheckpointModelTest, DemoModelHasEveryTensor) {
  ExpectLladaTensors(SPARSED_SOURCE_DIR "/models/demo-llada-17m");
}

TEST(CheckpointModelTest, DemoModelHasTheBytesItsIndexSays) {
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint,
                       Checkpoint::Open(SPARSED_SOURCE_DIR "/models/demo-llada-17m"));
  EXPECT_EQ(checkpoint.total_bytes(), 34616064);
}

class CheckpointGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CheckpointGoldenTest, HasEveryTensor) {
  GOLDEN_OR_SKIP(dir, GetParam());
  ExpectLladaTensors(dir.string());
}

INSTANTIATE_TEST_SUITE_P(Llada, CheckpointGoldenTest,
                         ::testing::Values("llada-tiny", "llada-tiny-gqa", "llada-tiny-mqa-tied"));

}  // namespace
}  // namespace sparsed
