// SPDX-License-Identifier: Apache-2.0
// The command line of sparsectl.
//
//   std::variant<Options, ParseExit> parsed = ParseOptions(argc, argv);
//
// Parsing reads the command line and the environment only: no files, no network.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sparsed/v1/generation.pb.h"

namespace sparsed::client {

// For every command.
struct GlobalOptions {
  std::string server = "127.0.0.1:50051";
  std::optional<double> timeout_seconds;  // unset: each command's own
  bool json = false;
  bool color = true;
  bool verbose = false;
};

// A text from the command line, a file, or standard input when both are unset.
struct TextSource {
  std::optional<std::string> text;
  std::string file;
};

// How `generate` and `chat` ask for a generation and what they do with it.
struct GenerationSettings {
  v1::GenerateRequest request;  // all but the input
  bool stream = true;
  std::string save_file;  // empty: the result is only shown
};

struct GenerateOptions {
  TextSource prompt;
  GenerationSettings generation;
};

struct ChatOptions {
  TextSource message;  // unset on a terminal: a conversation
  std::string system;
  GenerationSettings generation;
};

struct ModelOptions {};
struct LoadOptions {};
struct HealthOptions {
  std::string service;
};
struct TokenizeOptions {
  TextSource text;
  std::vector<uint32_t> ids;  // not empty: ids to text
  bool keep_special = false;
};
struct CancelOptions {
  std::string request_id;
};

struct Options {
  GlobalOptions global;
  std::variant<GenerateOptions, ChatOptions, ModelOptions, LoadOptions, HealthOptions,
               TokenizeOptions, CancelOptions>
      command;
};

// Nothing to run: help, version, or a bad command line.
struct ParseExit {
  int exit_code;
  std::string output;  // for standard output
  std::string error;   // for standard error
};

std::variant<Options, ParseExit> ParseOptions(int argc, const char* const* argv);

}  // namespace sparsed::client
