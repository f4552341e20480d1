// SPDX-License-Identifier: Apache-2.0
#include "engine/model/json_fields.h"

#include <utility>

#include "engine/base/concat.h"
#include "engine/model/json_file.h"

namespace sparsed {
namespace {

using Json = nlohmann::json;

std::string Limit(IntRange range) {
  return Concat("must be an integer in ", range.min, "..", range.max);
}

std::string Limit(NumberRange range) {
  return Concat("must be a number in ", range.min, "..", range.max);
}

// The integer, if the value is one (32.0 and true are not) inside the range.
std::optional<int32_t> ToInt(const Json& value, IntRange range) {
  if (!value.is_number_integer()) return std::nullopt;
  // A number above 2^63 - 1 would wrap around as int64.
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT32_MAX}) {
    return std::nullopt;
  }
  const int64_t number = value.get<int64_t>();
  if (number < range.min || number > range.max) return std::nullopt;
  return static_cast<int32_t>(number);
}

}  // namespace

JsonFields::JsonFields(std::string path, const Json& object)
    : path_(std::move(path)), object_(object) {}

const Json* JsonFields::Find(std::string_view field) const {
  const auto found = object_.find(field);
  return found == object_.end() ? nullptr : &*found;
}

bool JsonFields::IsPresent(std::string_view field) const {
  const Json* value = Find(field);
  return value != nullptr && !value->is_null();
}

absl::Status JsonFields::Fault(absl::StatusCode code, std::string_view field,
                               std::string_view limit) const {
  const Json* value = Find(field);
  const std::string text = value == nullptr ? "absent" : Excerpt(value->dump());
  return absl::Status(code, Concat(path_, ": ", field, " is ", text, ": ", limit));
}

void JsonFields::Refuse(std::string_view field, std::string_view limit) {
  if (status_.ok()) status_ = Fault(absl::StatusCode::kInvalidArgument, field, limit);
}

int32_t JsonFields::Int(std::string_view field, IntRange range) {
  if (!IsPresent(field)) Refuse(field, Limit(range));
  return OptionalInt(field, range).value_or(range.min);
}

double JsonFields::Number(std::string_view field, NumberRange range) {
  if (!IsPresent(field)) Refuse(field, Limit(range));
  return OptionalNumber(field, range).value_or(range.min);
}

std::optional<int32_t> JsonFields::OptionalInt(std::string_view field, IntRange range) {
  if (!IsPresent(field)) return std::nullopt;
  const std::optional<int32_t> number = ToInt(*Find(field), range);
  if (!number) Refuse(field, Limit(range));
  return number;
}

std::optional<double> JsonFields::OptionalNumber(std::string_view field, NumberRange range) {
  if (!IsPresent(field)) return std::nullopt;
  const Json& value = *Find(field);
  const double number = value.is_number() ? value.get<double>() : range.min;
  // Written so that NaN is refused too.
  if (value.is_number() && number >= range.min && number <= range.max) return number;
  Refuse(field, Limit(range));
  return std::nullopt;
}

std::optional<bool> JsonFields::OptionalBool(std::string_view field) {
  if (!IsPresent(field)) return std::nullopt;
  const Json& value = *Find(field);
  if (value.is_boolean()) return value.get<bool>();
  Refuse(field, "must be true or false");
  return std::nullopt;
}

std::vector<int32_t> JsonFields::IntOrList(std::string_view field, IntRange range) {
  std::vector<int32_t> numbers;
  if (!IsPresent(field)) return numbers;
  const Json& value = *Find(field);
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& item : list) {
    const std::optional<int32_t> number = ToInt(item, range);
    if (!number) {
      Refuse(field, Concat(Limit(range), ", or a list of such"));
      return {};
    }
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace sparsed
