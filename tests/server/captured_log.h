// SPDX-License-Identifier: Apache-2.0
// CapturedLog: what Log writes while one lives, at debug level and above.
//   CapturedLog log;
//   Log(LogLevel::kInfo, "serving", {{"model", "m"}});
//   EXPECT_EQ(log.text(), "info serving model=m\n");
// Any thread may log. Read the text when those threads are done.
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

namespace sparsed::testing {

class CapturedLog {
 public:
  CapturedLog() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_);
    auto logger = std::make_shared<spdlog::logger>("captured", std::move(sink));
    logger->set_pattern("%l %v");
    logger->set_level(spdlog::level::debug);
    spdlog::set_default_logger(std::move(logger));
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::string text() const { return stream_.str(); }

 private:
  std::ostringstream stream_;
  const std::shared_ptr<spdlog::logger> before_;
};

}  // namespace sparsed::testing
