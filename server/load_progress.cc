// SPDX-License-Identifier: Apache-2.0
#include "server/load_progress.h"

#include <cstdio>
#include <unistd.h>
#include <utility>

#include "server/log.h"

namespace sparsed {

LoadProgress::LoadProgress(std::string model)
    : model_(std::move(model)), terminal_(isatty(STDERR_FILENO) == 1) {}

LoadProgress::~LoadProgress() {
  if (terminal_ && shown_percent_ >= 0) std::fputc('\n', stderr);
}

void LoadProgress::Show(double share) {
  const int percent = static_cast<int>(share * 100);
  const int step = terminal_ ? 1 : 25;
  if (shown_percent_ >= 0 && percent / step == shown_percent_ / step) return;
  shown_percent_ = percent;
  if (terminal_) {
    std::fprintf(stderr, "\rloading %s %3d %%", model_.c_str(), percent);
  } else {
    Log(LogLevel::kInfo, "loading", {{"model", model_}, {"percent", percent}});
  }
}

}  // namespace sparsed
