// SPDX-License-Identifier: Apache-2.0
// EvalRow: one question with its one right answer, from bench/eval (README.md there).
//
//   ASSIGN_OR_RETURN(std::vector<EvalRow> rows, LoadEvalRows("build/bench/eval", "niah"));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace sparsed {

struct EvalRow {
  std::string task;    // "niah", ...
  int32_t length = 0;  // tokens the canvas was filled up to: 1024, 2048 or 4096
  int32_t index = 0;   // among the rows of that task and length, from 0
  std::string prompt;  // the user's message
  std::string answer;
};

// Rows of <dir>/<task>.jsonl in the file's order. NOT_FOUND names the file and says how it is made;
// INVALID_ARGUMENT names the line.
absl::StatusOr<std::vector<EvalRow>> LoadEvalRows(const std::string& dir, const std::string& task);

// Whether an answer is right: equal, but for white space around it.
bool IsCorrect(const std::string& answer, const std::string& expected);

}  // namespace sparsed
