// SPDX-License-Identifier: Apache-2.0
#include "bench/progress.h"

#include <cstdio>
#include <unistd.h>

namespace sparsed {
namespace {

std::string Clock(double seconds) {
  const auto all = static_cast<int64_t>(seconds);
  char text[32];
  std::snprintf(text, sizeof(text), "%d:%02d:%02d", static_cast<int>(all / 3600),
                static_cast<int>(all / 60 % 60), static_cast<int>(all % 60));
  return text;
}

}  // namespace

Progress::Progress(double total) : total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (terminal_ && rows_ > 0) std::fputc('\n', stderr);
}

void Progress::Done(const std::string& what, double work) {
  done_ += work;
  ++rows_;
  const double share = done_ / total_;
  const int twentieths = static_cast<int>(share * 20);
  if (!terminal_ && twentieths == printed_twentieths_) return;
  printed_twentieths_ = twentieths;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
  const std::string bar(static_cast<size_t>(twentieths), '#');
  std::fprintf(stderr, "%s[%-20s] %5.1f%%  %d rows in %s, %s left  %s%s",
               terminal_ ? "\r\x1b[K" : "", bar.c_str(), 100 * share, rows_,
               Clock(passed.count()).c_str(), Clock(passed.count() / share * (1 - share)).c_str(),
               what.c_str(), terminal_ ? "" : "\n");
  std::fflush(stderr);
}

}  // namespace sparsed
