// SPDX-License-Identifier: Apache-2.0
#include "engine/model/json_file.h"

#include <vector>

#include <absl/container/flat_hash_set.h>
#include <absl/strings/escaping.h>

#include "engine/base/concat.h"
#include "engine/base/status_macros.h"
#include "engine/model/input_file.h"

namespace sparsed {
namespace {

using Json = nlohmann::json;

// Walks the text once before a document is built from it, so that the limits bound the memory.
class JsonGuard : public nlohmann::json_sax<Json> {
 public:
  explicit JsonGuard(const JsonLimits& limits) : limits_(limits) {}

  const std::string& error() const { return error_; }

  bool null() override { return Value(); }
  bool boolean(bool) override { return Value(); }
  bool number_integer(number_integer_t) override { return Value(); }
  bool number_unsigned(number_unsigned_t) override { return Value(); }
  bool number_float(number_float_t, const string_t&) override { return Value(); }
  bool string(string_t&) override { return Value(); }
  bool binary(binary_t&) override { return Value(); }
  bool start_object(size_t) override { return Open(); }
  bool start_array(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    last_key_ = name;
    if (!names_.back().insert(name).second) return Fail("is given twice");
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    // what() is "[json.exception.parse_error.101] parse error at line 1, column 2: …".
    const std::string_view what = error.what();
    const size_t end = what.find("] ");
    return Fail(what.substr(end == std::string_view::npos ? 0 : end + 2));
  }

 private:
  bool Fail(std::string_view message) {
    error_ =
        last_key_.empty() ? Excerpt(message) : Concat(Excerpt(last_key_), ": ", Excerpt(message));
    return false;
  }
  bool Value() {
    if (++values_ <= limits_.values) return true;
    return Fail(Concat("more than ", limits_.values, " JSON values"));
  }
  bool Open() {
    names_.emplace_back();
    if (names_.size() <= limits_.depth) return Value();
    return Fail(Concat("JSON nested deeper than ", limits_.depth));
  }
  bool Close() {
    names_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  size_t values_ = 0;
  std::vector<absl::flat_hash_set<std::string>> names_;  // of each open object or array
  std::string last_key_;
  std::string error_;
};

}  // namespace

std::string Excerpt(std::string_view text) {
  constexpr size_t kMaxBytes = 160;
  std::string printable;
  for (const char c : text.substr(0, kMaxBytes)) {
    const std::string byte(1, c);
    printable += c >= ' ' && c <= '~' ? byte : absl::CHexEscape(byte);
  }
  if (text.size() > kMaxBytes) printable += "...";
  return printable;
}

absl::StatusOr<Json> ParseJsonObject(std::string_view text, std::string_view source,
                                     const JsonLimits& limits) {
  if (text.empty()) return absl::InvalidArgumentError(Concat(source, ": is empty"));
  JsonGuard guard(limits);
  if (!Json::sax_parse(text, &guard)) {
    return absl::InvalidArgumentError(Concat(source, ": ", guard.error()));
  }
  Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return absl::InvalidArgumentError(
        Concat(source, ": is a JSON ", document.type_name(), ": must be an object"));
  }
  return document;
}

absl::StatusOr<Json> ReadJsonObject(const std::string& path, const JsonLimits& limits) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const std::string text, file.Read(limits.bytes));
  return ParseJsonObject(text, path, limits);
}

}  // namespace sparsed
