// SPDX-License-Identifier: Apache-2.0
// Time per denoising step of whole generations through the Engine: one JSON line per generation on
// stdout.
//   step_bench --model models/demo-llada-17m --text tools/demo/long_context.txt --length 4096
//   --preset sparsed
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "engine/base/status_macros.h"
#include "engine/engine.h"
#include "engine/text/tokenizer.h"

namespace sparsed {
namespace {

struct Options {
  std::string model = "models/demo-llada-17m";
  std::string text = "tools/demo/long_context.txt";
  std::vector<int32_t> lengths = {512, 2048, 4096};
  std::vector<std::string> presets = {"dense", "sparsed"};
  int32_t block_tokens = 128;
  int32_t gen_length = 32;
  int32_t steps = 32;
  int32_t threads = 0;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Ids of the text, repeated until there are enough: natural text, so that masks are those of real
// use.
absl::StatusOr<std::vector<int32_t>> PromptIds(const Options& options, int32_t count) {
  std::ifstream file(options.text);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(options.model + "/tokenizer.json"));
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer->Encode(text, ControlTokens::kAsText));
  if (ids.empty()) return absl::InvalidArgumentError(options.text + " is missing or empty");
  std::vector<int32_t> prompt;
  while (static_cast<int32_t>(prompt.size()) < count) {
    prompt.push_back(ids[prompt.size() % ids.size()]);
  }
  return prompt;
}

absl::StatusOr<nlohmann::json> Generate(Engine* engine, const Options& options, int32_t length,
                                        const std::string& preset) {
  Request request;
  ASSIGN_OR_RETURN(std::vector<int32_t> prompt, PromptIds(options, length - options.gen_length));
  request.canvas =
      Canvas::FromPrompt(std::move(prompt), options.gen_length, engine->model().mask_token);
  request.policy.steps = options.steps;
  request.policy.block_length = options.gen_length;
  ASSIGN_OR_RETURN(request.attention, FindAttentionPreset(preset));
  request.attention.block_tokens = options.block_tokens;
  ASSIGN_OR_RETURN(const RequestId id, engine->Admit(std::move(request)));

  std::map<std::string, std::vector<double>> seconds;
  double total = 0;
  StepResult result;
  do {
    result = engine->Step({id})[0];
    RETURN_IF_ERROR(result.status);
    seconds[StepPhaseName(result.phase)].push_back(result.step_seconds);
    total += result.step_seconds;
  } while (!result.finished);

  nlohmann::json line = {
      {"bench", "generation"}, {"impl", "sparsed"},
      {"preset", preset},      {"L", length},
      {"T", options.steps},    {"gen_length", options.gen_length},
      {"seconds", total},      {"tokens_per_second", options.gen_length / total}};
  for (const auto& [phase, values] : seconds) line[phase + "_step_seconds"] = Median(values);
  if (preset != "dense") {
    line["block_tokens"] = options.block_tokens;
    line["density"] = result.density;
    line["retained_mass"] = result.retained_mass.value_or(1.0);
  }
  return line;
}

absl::Status Run(const Options& options) {
  EngineOptions engine_options;
  engine_options.model_dir = options.model;
  engine_options.threads = options.threads;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(engine_options));
  for (const int32_t length : options.lengths) {
    for (const std::string& preset : options.presets) {
      std::fprintf(stderr, "sparsed, %s, canvas %d ...\n", preset.c_str(), length);
      ASSIGN_OR_RETURN(const nlohmann::json line, Generate(engine.get(), options, length, preset));
      std::printf("%s\n", line.dump().c_str());
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace sparsed

int main(int argc, char** argv) {
  sparsed::Options options;
  CLI::App app{"Times denoising steps of whole generations through the engine"};
  app.add_option("--model", options.model, "Hugging Face folder")->capture_default_str();
  app.add_option("--text", options.text, "Text the prompts are cut from")->capture_default_str();
  app.add_option("--length", options.lengths, "Canvas lengths, tokens")->capture_default_str();
  app.add_option("--preset", options.presets, "Attention presets")->capture_default_str();
  app.add_option("--block-tokens", options.block_tokens, "Attention block size")
      ->capture_default_str();
  app.add_option("--gen-length", options.gen_length, "Generated tokens")->capture_default_str();
  app.add_option("--steps", options.steps, "Denoising steps")->capture_default_str();
  app.add_option("--threads", options.threads, "0 = all cores")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = sparsed::Run(options);
  if (!status.ok()) std::fprintf(stderr, "step_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
