// SPDX-License-Identifier: Apache-2.0
#include "bench/eval_rows.h"

#include <fstream>
#include <map>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace sparsed {
namespace {

using nlohmann::json;

bool HasFields(const json& line) {
  const auto is_string = [&line](const char* key) {
    return line.contains(key) && line[key].is_string();
  };
  return line.is_object() && is_string("prompt") && is_string("answer") &&
         line.contains("length") && line["length"].is_number_integer();
}

}  // namespace

absl::StatusOr<std::vector<EvalRow>> LoadEvalRows(const std::string& dir, const std::string& task) {
  const std::string path = absl::StrCat(dir, "/", task, ".jsonl");
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(absl::StrCat(
        path, " cannot be read; the build unpacks it: cmake --build --preset bench --target ",
        "fidelity (or xz -dc bench/eval/", task, ".jsonl.xz > ", path, ")"));
  }
  std::vector<EvalRow> rows;
  std::map<int32_t, int32_t> count;  // by length
  int line_number = 0;
  for (std::string text; std::getline(file, text);) {
    ++line_number;
    const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!HasFields(line)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ":", line_number, ": is not a JSON object with prompt, answer and length"));
    }
    const int32_t length = line["length"];
    rows.push_back({task, length, count[length]++, line["prompt"], line["answer"]});
  }
  return rows;
}

bool IsCorrect(const std::string& answer, const std::string& expected) {
  return absl::StripAsciiWhitespace(answer) == absl::StripAsciiWhitespace(expected);
}

}  // namespace sparsed
