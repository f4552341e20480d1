// SPDX-License-Identifier: Apache-2.0
#include "client/generation_view.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "client/canvas_view.h"
#include "client/json_output.h"
#include "client/line_layout.h"
#include "client/summary.h"
#include "client/terminal.h"

namespace sparsed::client {
namespace {

constexpr int kBarColumns = 10;

// `━━━━━╌╌╌╌╌ ` for the share of steps done.
std::vector<Cell> ProgressBar(uint32_t step, uint32_t steps) {
  const int done = steps == 0 ? 0 : static_cast<int>(uint64_t{step} * kBarColumns / steps);
  std::string bar;
  for (int i = 0; i < kBarColumns; ++i) bar += i < done ? "━" : "╌";
  return TextCells(bar + " ", CellStyle::kNote);
}

// The text after the bar, cut to the width; the bar goes first where both do not fit.
Line StatusWithBar(Line bar, const std::string& text, int columns) {
  Line line = TextCells(text, CellStyle::kNote);
  if (LineColumns(bar) + LineColumns(line) <= columns) {
    line.insert(line.begin(), bar.begin(), bar.end());
  }
  return WrapCells(std::move(line), columns).front();
}

// What is told of a result beside its text.
std::string Facts(const v1::GenerateResponse& response, bool verbose) {
  return absl::StrCat(Summary(response), verbose ? LayerTable(response.sparsity()) : "");
}

class LiveView final : public GenerationView {
 public:
  explicit LiveView(const GlobalOptions& options)
      : color_(options.color), verbose_(options.verbose), region_(STDOUT_FILENO, options.color) {}

  void OnSent() override { Draw({}, "waiting for the server"); }

  void OnEvent(const v1::GenerateEvent& event) override {
    switch (event.event_case()) {
      case v1::GenerateEvent::kStarted:
        canvas_.emplace(event.started().prompt_tokens(),
                        event.started().resolved().decoding().gen_length());
        Draw(ProgressBar(0, 1),
             absl::StrCat("reading ", event.started().prompt_tokens(), " tokens of prompt"));
        break;
      case v1::GenerateEvent::kProgress:
        if (canvas_) canvas_->Apply(event.progress().edits());
        Draw(ProgressBar(event.progress().step(), event.progress().steps()),
             StatusLine(event.progress()));
        break;
      case v1::GenerateEvent::kFinished:
        OnResponse(event.finished());
        break;
      case v1::GenerateEvent::EVENT_NOT_SET:
        break;
    }
  }

  void OnResponse(const v1::GenerateResponse& response) override {
    const int columns = Columns();
    region_.Finish(WrapCells(TextCells(response.text(), CellStyle::kCommitted), columns));
    std::cerr << "\n";
    const std::string facts = Facts(response, verbose_);
    for (const Line& line : WrapCells(TextCells(facts, CellStyle::kNote), columns)) {
      std::cerr << Paint(line, color_ && isatty(STDERR_FILENO) != 0) << "\n";
    }
  }

 private:
  // One column stays free: a terminal that has written its last column waits with the line break.
  static int Columns() { return std::max(1, SizeOfTerminal(STDOUT_FILENO).columns - 1); }

  void Draw(Line bar, const std::string& status) {
    const int columns = Columns();
    const int rows = SizeOfTerminal(STDOUT_FILENO).rows;
    std::vector<Line> lines;
    // The status line and the shell's last line take one row each.
    if (canvas_) lines = CutToWindow(WrapCells(canvas_->Cells(), columns), rows - 2, columns);
    region_.Draw(lines, StatusWithBar(std::move(bar), status, columns));
  }

  const bool color_;
  const bool verbose_;
  LiveRegion region_;
  std::optional<CanvasView> canvas_;
};

class PlainView final : public GenerationView {
 public:
  explicit PlainView(bool verbose) : verbose_(verbose) {}

  void OnSent() override {}

  void OnEvent(const v1::GenerateEvent& event) override {
    if (event.has_finished()) OnResponse(event.finished());
    if (!verbose_) return;
    if (event.has_started()) {
      std::cerr << "started: " << event.started().prompt_tokens() << " tokens of prompt, "
                << event.started().steps() << " steps, queued "
                << FormatSeconds(event.started().queue_seconds()) << "\n";
    } else if (event.has_progress()) {
      std::cerr << StatusLine(event.progress()) << "\n";
    }
  }

  void OnResponse(const v1::GenerateResponse& response) override {
    std::cout << response.text() << "\n" << std::flush;
    if (verbose_) std::cerr << Facts(response, verbose_);
  }

 private:
  const bool verbose_;
};

class JsonView final : public GenerationView {
 public:
  void OnSent() override {}
  void OnEvent(const v1::GenerateEvent& event) override {
    std::cout << JsonLine(event) << std::flush;
  }
  void OnResponse(const v1::GenerateResponse& response) override {
    std::cout << JsonLine(response) << std::flush;
  }
};

}  // namespace

bool IsLive(const GlobalOptions& options) { return !options.json && IsTerminal(STDOUT_FILENO); }

std::unique_ptr<GenerationView> MakeGenerationView(const GlobalOptions& options) {
  if (options.json) return std::make_unique<JsonView>();
  if (IsLive(options)) return std::make_unique<LiveView>(options);
  return std::make_unique<PlainView>(options.verbose);
}

}  // namespace sparsed::client
