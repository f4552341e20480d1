// SPDX-License-Identifier: Apache-2.0
// Progress: a bar with an estimate of the time left, on stderr; on a terminal it redraws itself,
// elsewhere it prints a line for every twentieth of the work.
//
//   Progress progress(total_work);
//   progress.Done("dense, niah 4096", work_of_a_row);
#pragma once

#include <chrono>
#include <string>

namespace sparsed {

class Progress {
 public:
  // total: in any unit that is proportional to time.
  explicit Progress(double total);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Done(const std::string& what, double work);

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const double total_;
  const bool terminal_;
  double done_ = 0;
  int rows_ = 0;
  int printed_twentieths_ = 0;
};

}  // namespace sparsed
