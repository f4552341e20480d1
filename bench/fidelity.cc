// SPDX-License-Identifier: Apache-2.0
// What attention settings cost and gain: answers questions about long contexts through the Engine
// and writes one JSON line per answer. docs/fidelity.md tells what is measured.
//   fidelity --setting dense 'sparsed_b32_*' --length 4096 --n 100 --out results.jsonl
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

#include "bench/batch_run.h"
#include "bench/eval_rows.h"
#include "bench/progress.h"
#include "bench/result_file.h"
#include "bench/settings.h"
#include "engine/base/status_macros.h"
#include "engine/engine.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

namespace sparsed {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

struct Options {
  std::string model = "models/demo-llada-17m";
  std::string eval = "build/bench/eval";
  std::string settings = "bench/fidelity_settings.jsonl";
  std::string out;
  std::vector<std::string> setting_patterns;
  std::vector<std::string> tasks = {"niah", "reverse_niah", "glossary", "follow"};
  std::vector<int32_t> lengths = {1024, 2048, 4096};
  std::string device = "cpu";
  std::string shard = "0/1";
  int32_t n = 100;
  int32_t steps = 32;
  int32_t gen_length = 32;
  int32_t rows = 1;
  int32_t threads = 0;
  bool detail = false;
  bool list = false;
  bool stop_on_end = true;
};

struct Shard {
  int32_t index = 0;
  int32_t count = 1;
};

absl::StatusOr<Shard> ParseShard(const std::string& text) {
  Shard shard;
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &shard.index) &&
      absl::SimpleAtoi(parts[1], &shard.count) && shard.index >= 0 && shard.index < shard.count) {
    return shard;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--shard is ", text, ": must be I/K with 0 <= I < K, e.g. 0/4"));
}

// The rows a process answers, whatever the setting.
absl::StatusOr<std::vector<EvalRow>> ChooseRows(const Options& options) {
  ASSIGN_OR_RETURN(const Shard shard, ParseShard(options.shard));
  std::vector<EvalRow> chosen;
  for (const std::string& task : options.tasks) {
    ASSIGN_OR_RETURN(std::vector<EvalRow> rows, LoadEvalRows(options.eval, task));
    for (EvalRow& row : rows) {
      const bool wanted = row.index < options.n && row.index % shard.count == shard.index &&
                          std::count(options.lengths.begin(), options.lengths.end(), row.length);
      if (wanted) chosen.push_back(std::move(row));
    }
  }
  // Rows that share a step should be of one length, and the quick ones come first.
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const EvalRow& a, const EvalRow& b) { return a.length < b.length; });
  if (!chosen.empty()) return chosen;
  return absl::NotFoundError("no row has one of the lengths asked for and is in the shard");
}

// One setting's rows that are not in the result file yet.
struct Work {
  const Setting* setting;
  nlohmann::json conditions;
  std::vector<const EvalRow*> rows;
};

class Fidelity {
 public:
  Fidelity(const Options& options, std::vector<Setting> settings, std::vector<EvalRow> rows,
           ResultFile file)
      : options_(options),
        settings_(std::move(settings)),
        rows_(std::move(rows)),
        file_(std::move(file)) {}

  absl::Status Run() {
    RETURN_IF_ERROR(PlanWork());
    if (work_.empty()) {
      std::fprintf(stderr, "fidelity: %s holds every row asked for\n", options_.out.c_str());
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(LoadModel());
    Progress progress(TotalCost());
    for (const Work& work : work_) RETURN_IF_ERROR(RunSetting(work, &progress));
    return absl::OkStatus();
  }

 private:
  absl::Status PlanWork() {
    for (const Setting& setting : settings_) {
      Work work = {&setting, Conditions(setting), {}};
      for (const EvalRow& row : rows_) {
        ASSIGN_OR_RETURN(const bool done, file_.Has(KeyOf(setting, row), work.conditions));
        if (!done) work.rows.push_back(&row);
      }
      if (!work.rows.empty()) work_.push_back(std::move(work));
    }
    return absl::OkStatus();
  }

  // What decides an answer, besides setting and row.
  nlohmann::json Conditions(const Setting& setting) const {
    return {{"plan", setting.overrides},
            {"steps", options_.steps},
            {"gen_length", options_.gen_length},
            {"stop_on_end", options_.stop_on_end}};
  }

  static ResultKey KeyOf(const Setting& setting, const EvalRow& row) {
    return {setting.name, row.task, row.length, row.index};
  }

  absl::Status LoadModel() {
    constexpr int64_t kMaskBytesPerRow = int64_t{8} << 20;  // ample at 4096 tokens, blocks of 32
    EngineOptions engine_options;
    engine_options.model_dir = options_.model;
    engine_options.threads = options_.threads;
    engine_options.device = options_.device;
    engine_options.max_rows = options_.rows;
    engine_options.mask_budget_bytes = kMaskBytesPerRow * options_.rows;
    engine_options.guard = std::any_of(work_.begin(), work_.end(), [](const Work& work) {
      return work.setting->plan.sparse() && work.setting->plan.guard;
    });
    ASSIGN_OR_RETURN(engine_, LoadEngine(engine_options));
    ASSIGN_OR_RETURN(tokenizer_, Tokenizer::Load(options_.model + "/tokenizer.json"));
    ASSIGN_OR_RETURN(chat_template_, ChatTemplate::Load(options_.model + "/tokenizer_config.json"));
    // As the server: config.json names the end of a text, the template's end of a turn ends too.
    end_tokens_ = engine_->model().end_tokens;
    if (const auto end_of_turn = tokenizer_->TokenId("<|eot_id|>")) {
      end_tokens_.push_back(*end_of_turn);
    }
    return absl::OkStatus();
  }

  // Linear layers and attention of the embedded model; other models: the estimate of the time left
  // is off, nothing else.
  static double Cost(const EvalRow& row) { return row.length * (row.length + 2300.0); }

  double TotalCost() const {
    double total = 0;
    for (const Work& work : work_) {
      for (const EvalRow* row : work.rows) total += Cost(*row);
    }
    return total;
  }

  absl::Status RunSetting(const Work& work, Progress* progress) {
    Batch batch;
    batch.count = work.rows.size();
    batch.max_rows = options_.rows;
    batch.request = [&](size_t i) { return MakeRequest(*work.setting, *work.rows[i]); };
    batch.done = [&](size_t i, const RowTally& tally) {
      const EvalRow& row = *work.rows[i];
      RETURN_IF_ERROR(Write(work, row, tally));
      progress->Done(absl::StrCat(work.setting->name, ", ", row.task, " ", row.length), Cost(row));
      return absl::OkStatus();
    };
    batch.stop = [] { return g_interrupted != 0; };
    const absl::Status status = RunBatch(engine_.get(), batch);
    if (status.ok() || absl::IsCancelled(status)) return status;
    return absl::Status(status.code(), absl::StrCat("setting ", work.setting->name, ": ",
                                                    std::string(status.message())));
  }

  absl::StatusOr<Request> MakeRequest(const Setting& setting, const EvalRow& row) const {
    const std::vector<ChatMessage> chat = {{"user", row.prompt}};
    ASSIGN_OR_RETURN(std::vector<int32_t> prompt,
                     chat_template_->Encode(chat, /*add_generation_prompt=*/true, *tokenizer_));
    Request request;
    request.canvas =
        Canvas::FromPrompt(std::move(prompt), options_.gen_length, engine_->model().mask_token);
    request.policy.steps = options_.steps;
    request.policy.block_length = options_.gen_length;
    if (options_.stop_on_end) request.policy.end_tokens = end_tokens_;
    request.attention = setting.plan;
    return request;
  }

  absl::Status Write(const Work& work, const EvalRow& row, const RowTally& tally) {
    const absl::Span<const int32_t> tokens = tally.Answer(end_tokens_);
    ASSIGN_OR_RETURN(const std::string answer, tokenizer_->Decode(tokens, /*skip_special=*/true));
    nlohmann::json measures = tally.Measures(engine_->model().layers, options_.detail);
    measures["answer"] = answer;
    measures["sparse_answer_share"] = tally.SparseShare(tokens.size());
    measures["correct"] = IsCorrect(answer, row.answer);
    measures["model"] = engine_->model().name;
    measures["device"] = engine_->model().device;
    measures["dtype"] = engine_->model().dtype;
    return file_.Append(KeyOf(*work.setting, row), work.conditions, measures);
  }

  const Options options_;
  const std::vector<Setting> settings_;
  const std::vector<EvalRow> rows_;
  ResultFile file_;
  std::vector<Work> work_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;
  std::vector<int32_t> end_tokens_;
};

absl::Status Run(const Options& options) {
  ASSIGN_OR_RETURN(const std::vector<Setting> all, LoadSettings(options.settings));
  ASSIGN_OR_RETURN(std::vector<Setting> settings, FilterSettings(all, options.setting_patterns));
  if (options.list) {
    for (const Setting& setting : settings) std::printf("%s\n", setting.name.c_str());
    return absl::OkStatus();
  }
  if (options.out.empty()) return absl::InvalidArgumentError("--out is missing: name a file");
  ASSIGN_OR_RETURN(std::vector<EvalRow> rows, ChooseRows(options));
  ASSIGN_OR_RETURN(ResultFile file, ResultFile::Open(options.out));
  return Fidelity(options, std::move(settings), std::move(rows), std::move(file)).Run();
}

void AddOptions(CLI::App* app, Options* options) {
  app->add_option("--out", options->out,
                  "Result lines are appended here; rows it already holds are skipped");
  app->add_option("--settings", options->settings, "Settings, JSON lines")->capture_default_str();
  app->add_option("--setting", options->setting_patterns,
                  "Only settings of these names; * and ? match");
  app->add_flag("--list", options->list, "Print the names of the settings and stop");
  app->add_option("--task", options->tasks, "Tasks, files of --eval")->capture_default_str();
  app->add_option("--length", options->lengths, "Context lengths")->capture_default_str();
  app->add_option("--n", options->n, "Rows of each task and length, from the first")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->add_option("--shard", options->shard, "I/K: only rows I, I + K, ...; for K processes")
      ->capture_default_str();
  app->add_option("--model", options->model, "Hugging Face folder")->capture_default_str();
  app->add_option("--eval", options->eval, "Folder of the rows, JSON lines")->capture_default_str();
  app->add_option("--gen-length", options->gen_length, "Generated tokens, one block")
      ->capture_default_str();
  app->add_option("--steps", options->steps, "Denoising steps")->capture_default_str();
  app->add_flag("!--no-stop-on-end", options->stop_on_end,
                "Run all steps, though the answer has ended");
  app->add_option("--rows", options->rows,
                  "Rows that share a step; times are exact shares only with 1")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->add_option("--threads", options->threads, "0 = all cores")->capture_default_str();
  app->add_option("--device", options->device, "cpu or cuda")->capture_default_str();
  app->add_flag("--detail", options->detail, "Also density and retained mass of every head");
}

}  // namespace
}  // namespace sparsed

int main(int argc, char** argv) {
  sparsed::Options options;
  CLI::App app{"Accuracy, density, retained mass and time of attention settings"};
  sparsed::AddOptions(&app, &options);
  CLI11_PARSE(app, argc, argv);
  for (const int signal : {SIGINT, SIGTERM}) {
    std::signal(signal, [](int) { sparsed::g_interrupted = 1; });
  }
  const absl::Status status = sparsed::Run(options);
  if (absl::IsCancelled(status)) {
    std::fprintf(stderr, "fidelity: interrupted; the same command continues\n");
    return 130;
  }
  if (!status.ok()) std::fprintf(stderr, "fidelity: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
