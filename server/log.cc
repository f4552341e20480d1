// SPDX-License-Identifier: Apache-2.0
#include "server/log.h"

#include <atomic>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace sparsed {
namespace {

std::atomic<LogFormat> log_format = LogFormat::kText;

std::string JsonString(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool IsPlainWord(const std::string& text) {
  for (const char c : text) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 127) return false;
  }
  return !text.empty();
}

// A text value is quoted only where it would not read as one word.
std::string FormatValue(const LogField::Value& value, bool always_quote) {
  if (const auto* number = std::get_if<int64_t>(&value)) return absl::StrCat(*number);
  if (const auto* real = std::get_if<double>(&value)) return nlohmann::json(*real).dump();
  const std::string& text = std::get<std::string>(value);
  return always_quote || !IsPlainWord(text) ? JsonString(text) : text;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void StartLogging(const std::string& level, LogFormat format) {
  log_format = format;
  auto logger = spdlog::stderr_logger_mt("sparsed");
  const bool json = format == LogFormat::kJson;
  // %v closes the object that the pattern opens.
  logger->set_pattern(
      json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v)" : "%Y-%m-%d %H:%M:%S.%e %l %v",
      json ? spdlog::pattern_time_type::utc : spdlog::pattern_time_type::local);
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

std::string FormatLogLine(LogFormat format, std::string_view event,
                          std::initializer_list<LogField> fields) {
  const bool json = format == LogFormat::kJson;
  std::string line =
      json ? absl::StrCat("\"event\":", JsonString(std::string(event))) : std::string(event);
  for (const LogField& field : fields) {
    if (std::holds_alternative<std::monostate>(field.value)) continue;
    const std::string key(field.key);
    if (json) {
      absl::StrAppend(&line, ",\"", key, "\":", FormatValue(field.value, true));
    } else {
      absl::StrAppend(&line, " ", key, "=", FormatValue(field.value, false));
    }
  }
  return json ? line + "}" : line;
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  const spdlog::level::level_enum spdlog_level = ToSpdlog(level);
  if (!spdlog::should_log(spdlog_level)) return;
  spdlog::log(spdlog_level, "{}", FormatLogLine(log_format, event, fields));
}

}  // namespace sparsed
