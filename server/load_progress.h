// SPDX-License-Identifier: Apache-2.0
// LoadProgress: shows on standard error how far the model has loaded: one line that is rewritten in
// a terminal, a log line per quarter elsewhere.
//   LoadProgress progress("demo-llada-17m");
//   options.on_progress = [&](double share) { progress.Show(share); return true; };
// One thread.
#pragma once

#include <string>

namespace sparsed {

class LoadProgress {
 public:
  explicit LoadProgress(std::string model);
  ~LoadProgress();  // ends the line in a terminal

  void Show(double share);

 private:
  const std::string model_;
  const bool terminal_;
  int shown_percent_ = -1;
};

}  // namespace sparsed
