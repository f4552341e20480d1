// SPDX-License-Identifier: Apache-2.0
// ResultFile: the fidelity benchmark's results, one JSON line per generation, appended as they come.
//
//   ASSIGN_OR_RETURN(ResultFile file, ResultFile::Open("results.jsonl"));
//   ASSIGN_OR_RETURN(const bool done, file.Has(key, conditions));
//   if (!done) RETURN_IF_ERROR(file.Append(key, conditions, measures));
//
// Whatever stops the program, the file holds whole lines but for the last, which Open cuts off when
// it is not whole. One process writes a file. Not thread-safe.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <tuple>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace sparsed {

// Which generation a line is about.
struct ResultKey {
  std::string setting;
  std::string task;
  int32_t length = 0;
  int32_t row = 0;
  auto operator<=>(const ResultKey&) const = default;
};

class ResultFile {
 public:
  // Reads what is there, or begins a file. PERMISSION_DENIED: cannot be written. DATA_LOSS names a
  // line that is not a result.
  static absl::StatusOr<ResultFile> Open(const std::string& path);

  // Whether the generation is in the file. `conditions` is everything that decides its answer (plan,
  // steps, model, ...): FAILED_PRECONDITION if the file holds it under other conditions, because
  // one table would mix the two.
  absl::StatusOr<bool> Has(const ResultKey& key, const nlohmann::json& conditions) const;

  // Writes one line: key, measures, conditions; it is in the file when this returns.
  absl::Status Append(const ResultKey& key, const nlohmann::json& conditions,
                      const nlohmann::json& measures);

 private:
  explicit ResultFile(std::string path) : path_(std::move(path)) {}
  absl::Status Load();

  std::string path_;
  std::map<ResultKey, nlohmann::json> conditions_;  // of every line
  std::ofstream out_;
};

}  // namespace sparsed
