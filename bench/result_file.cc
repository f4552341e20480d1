// SPDX-License-Identifier: Apache-2.0
#include "bench/result_file.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>

#include "engine/base/status_macros.h"

namespace sparsed {
namespace {

using nlohmann::json;

bool IsResult(const json& line) {
  const auto has = [&line](const char* key, bool (json::*is)() const noexcept) {
    return line.contains(key) && (line[key].*is)();
  };
  return line.is_object() && has("setting", &json::is_string) && has("task", &json::is_string) &&
         has("length", &json::is_number_integer) && has("row", &json::is_number_integer) &&
         has("conditions", &json::is_object);
}

// A file that ends inside a line was written by a process that was killed.
absl::Status CutUnfinishedLine(const std::string& path, uintmax_t whole_bytes) {
  std::error_code error;
  if (std::filesystem::file_size(path, error) == whole_bytes && !error) return absl::OkStatus();
  if (!error) std::filesystem::resize_file(path, whole_bytes, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(path, " ends inside a line and cannot be cut: ", error.message()));
}

}  // namespace

absl::StatusOr<ResultFile> ResultFile::Open(const std::string& path) {
  ResultFile file(path);
  if (std::filesystem::exists(path)) RETURN_IF_ERROR(file.Load());
  file.out_.open(path, std::ios::app);
  if (!file.out_) {
    return absl::PermissionDeniedError(absl::StrCat("--out ", path, " cannot be written"));
  }
  return file;
}

absl::Status ResultFile::Load() {
  std::ifstream in(path_);
  uintmax_t whole_bytes = 0;
  int line_number = 0;
  for (std::string text; std::getline(in, text) && !in.eof();) {
    ++line_number;
    whole_bytes += text.size() + 1;
    json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!IsResult(line)) {
      return absl::DataLossError(absl::StrCat(path_, ":", line_number,
                                              ": is not a result of this benchmark; delete the "
                                              "line or choose another --out"));
    }
    conditions_[{line["setting"], line["task"], line["length"], line["row"]}] =
        std::move(line["conditions"]);
  }
  in.close();
  return CutUnfinishedLine(path_, whole_bytes);
}

absl::StatusOr<bool> ResultFile::Has(const ResultKey& key, const json& conditions) const {
  const auto found = conditions_.find(key);
  if (found == conditions_.end()) return false;
  if (found->second == conditions) return true;
  return absl::FailedPreconditionError(absl::StrCat(
      path_, " holds results of setting ", key.setting, " under ", found->second.dump(),
      ", asked is ", conditions.dump(), "; rename the setting or choose another --out"));
}

absl::Status ResultFile::Append(const ResultKey& key, const json& conditions,
                                const json& measures) {
  json line = measures;
  line["setting"] = key.setting;
  line["task"] = key.task;
  line["length"] = key.length;
  line["row"] = key.row;
  line["conditions"] = conditions;
  // Invalid UTF-8 cannot come out of the tokenizer; replacing it keeps dump() from throwing.
  out_ << line.dump(-1, ' ', false, json::error_handler_t::replace) << '\n' << std::flush;
  if (!out_) return absl::DataLossError(absl::StrCat(path_, " cannot be written: disk full?"));
  conditions_[key] = conditions;
  return absl::OkStatus();
}

}  // namespace sparsed
