// SPDX-License-Identifier: Apache-2.0
// Structured log lines on standard error, through spdlog.
//
//   Log(LogLevel::kInfo, "request", {{"id", id}, {"steps", 32}, {"density", 0.41}});
//   text: 2026-05-01 12:00:00.123 info request id=a1 steps=32 density=0.41
//   json: {"time":"2026-05-01T12:00:00.123Z","level":"info","event":"request","id":"a1",...}
//
// A field whose value is an unset optional is left out. Values must never hold what a user wrote.
// Any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "server/config.h"

namespace sparsed {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogField {
  using Value = std::variant<std::monostate, std::string, int64_t, double>;

  template <class T>
  LogField(std::string_view field_key, const T& field_value)  // NOLINT: {"key", value}
      : key(field_key), value(ToValue(field_value)) {}
  template <class T>
  LogField(std::string_view field_key, const std::optional<T>& field_value)  // NOLINT: as above
      : key(field_key), value(field_value ? ToValue(*field_value) : Value()) {}

  std::string_view key;
  Value value;

 private:
  template <class T>
  static Value ToValue(const T& from) {
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(from);
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<int64_t>(from);
    } else {
      return std::string(from);
    }
  }
};

// Call once, before the first line. `level` is one of ServerConfig::log_level's values.
void StartLogging(const std::string& level, LogFormat format);

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

// The part of a line behind time and level.
std::string FormatLogLine(LogFormat format, std::string_view event,
                          std::initializer_list<LogField> fields);

}  // namespace sparsed
