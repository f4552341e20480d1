// SPDX-License-Identifier: Apache-2.0
// Subprocess: a program under test with its streams, optionally on a pseudo-terminal.
//
//   Subprocess process({binary, "model"}, {.environment = {"SPARSED_SERVER=" + address}});
//   const Finished result = process.Wait();
//
// Not thread-safe. The destructor kills a program that still runs, and so does the end of the test.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

namespace sparsed::testing {

// NAME=VALUE of this process, with which a child built with sanitizers finds their options.
std::vector<std::string> InheritedEnvironment();

struct Finished {
  int exit_code;  // 128 + signal if a signal ended it
  std::string out;
  std::string error;
};

class Subprocess {
 public:
  struct Terminal {
    unsigned short columns = 80;
    unsigned short rows = 24;
  };
  struct Options {
    std::vector<std::string> environment = {};        // NAME=VALUE, all of it
    std::string input = {};                           // of a standard input that is a pipe
    std::optional<Terminal> terminal = std::nullopt;  // standard output (and input) is one
  };

  Subprocess(const std::vector<std::string>& command, const Options& options);
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  void Signal(int signal) const;
  // Types into the terminal.
  void Type(const std::string& text) const;
  // True once the program has ended, which Wait then collects; false if it still runs at `limit`.
  bool EndsWithin(std::chrono::milliseconds limit) const;
  Finished Wait();

 private:
  pid_t pid_ = -1;
  int input_fd_ = -1;  // the terminal's master, or the write end of a pipe
  int out_fd_ = -1;
  int error_fd_ = -1;
  Finished finished_;
  std::thread out_reader_;
  std::thread error_reader_;
};

}  // namespace sparsed::testing
