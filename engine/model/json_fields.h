// SPDX-License-Identifier: Apache-2.0
// JsonFields: typed, range-checked fields of a JSON object that came from a file.
//
//   JsonFields fields(path, object);
//   config.layers = fields.Int("n_layers", {1, 1024});
//   config.rope_theta = fields.Number("rope_theta", {1, 1e12});
//   RETURN_IF_ERROR(fields.status());  // "…/config.json: n_layers is -3: must be an integer in …"
//
// The first fault is kept and the getters then return a value inside the range, so that a reader
// asks for everything and checks once. Borrows the object. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <nlohmann/json.hpp>

namespace sparsed {

// Both ends are allowed values.
struct IntRange {
  int32_t min;
  int32_t max;
};
struct NumberRange {
  double min;
  double max;
};

class JsonFields {
 public:
  JsonFields(std::string path, const nlohmann::json& object);

  // INVALID_ARGUMENT with file, field, value and limit, of the first fault.
  const absl::Status& status() const { return status_; }

  // A field that must be there.
  int32_t Int(std::string_view field, IntRange range);
  double Number(std::string_view field, NumberRange range);  // finite

  // Nothing if the field is absent or null.
  std::optional<int32_t> OptionalInt(std::string_view field, IntRange range);
  std::optional<double> OptionalNumber(std::string_view field, NumberRange range);
  std::optional<bool> OptionalBool(std::string_view field);
  // An integer or a list of integers; empty if absent or null.
  std::vector<int32_t> IntOrList(std::string_view field, IntRange range);

  // The value, or null (the pointer) if the field is absent.
  const nlohmann::json* Find(std::string_view field) const;

  // "FILE: FIELD is VALUE: LIMIT" (or "is absent"), with the given code.
  absl::Status Fault(absl::StatusCode code, std::string_view field, std::string_view limit) const;
  // Keeps an INVALID_ARGUMENT Fault unless there is one already.
  void Refuse(std::string_view field, std::string_view limit);

 private:
  bool IsPresent(std::string_view field) const;  // neither absent nor null

  const std::string path_;
  const nlohmann::json& object_;
  absl::Status status_;
};

}  // namespace sparsed
