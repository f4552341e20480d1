// SPDX-License-Identifier: Apache-2.0
// ServerConfig: what an operator may set, from flags, a file (--config) and SPARSED_* variables.
//
//   ParsedConfig parsed = ParseConfig(argc, argv);
//   if (const auto* stop = std::get_if<ConfigExit>(&parsed)) return Print(*stop);
//   const ServerConfig& config = std::get<ServerConfig>(parsed);
//
// A flag wins over the file, the file over the environment. Nothing throws.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace sparsed {

enum class LogFormat { kText, kJson };

struct ServerConfig {
  std::string model_dir;                       // Hugging Face folder
  std::string listen = "127.0.0.1:50051";      // gRPC; port 0 = a free one
  std::string http_listen = "127.0.0.1:9464";  // metrics and probes; port 0 = a free one
  int32_t max_rows = 8;                        // requests that run at the same time
  int32_t max_queue = 64;                      // requests that wait
  int64_t max_batch_tokens = 16384;            // canvas tokens in one step
  int64_t mask_budget_mib = 64;                // memory for block masks
  int32_t threads = 0;                         // 0 = all cores
  int32_t drain_seconds = 30;                  // time for running requests after SIGTERM
  int32_t stall_seconds = 30;                  // a stream whose client reads nothing is cancelled
  std::string default_preset = "dense";        // attention of requests that name none
  bool attention_guard = true;                 // run dense where sparse attention is no faster
  int32_t max_message_mib = 16;                // largest request
  std::string log_level = "info";              // debug, info, warning or error
  LogFormat log_format = LogFormat::kText;
  std::string port_file;  // written once both ports are bound: {"grpc": 50051, "http": 9464}
};

// There is nothing to serve: --help, --version (code 0) or a bad value (code 2).
struct ConfigExit {
  int code = 0;
  std::string message;  // for stdout when code is 0, else one line for stderr
};

using ParsedConfig = std::variant<ServerConfig, ConfigExit>;

ParsedConfig ParseConfig(int argc, const char* const* argv);

}  // namespace sparsed
