// SPDX-License-Identifier: Apache-2.0
#include "client/session.h"

#include <fstream>
#include <iostream>
#include <istream>
#include <iterator>
#include <unistd.h>
#include <utility>

#include <absl/strings/str_cat.h>

#include "client/exit_code.h"
#include "client/failure.h"
#include "client/json_output.h"
#include "client/utf8.h"

namespace sparsed::client {
namespace {

constexpr size_t kMaxTextBytes = 64u << 20;

absl::StatusOr<std::string> Utf8Text(std::string text, const std::string& name) {
  const absl::Status status = CheckUtf8(text, name);
  if (!status.ok()) return status;
  return text;
}

absl::StatusOr<std::string> ReadStream(std::istream& in, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (in.read(buffer, sizeof buffer) || in.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(in.gcount()));
    if (text.size() > kMaxTextBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is longer than ", kMaxTextBytes, " bytes"));
    }
  }
  if (in.bad()) return absl::NotFoundError(absl::StrCat("cannot read ", name));
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return Utf8Text(std::move(text), name);
}

}  // namespace

int ReportFailure(const Session& session, const grpc::Status& status) {
  const Failure failure =
      DescribeFailure(status, session.connection.server(), session.connection.reached());
  if (session.options.json) std::cout << JsonErrorLine(status) << std::flush;
  std::cerr << "sparsectl: " << failure.text;
  return failure.exit_code;
}

int ReportBadInput(const absl::Status& status) {
  std::cerr << "sparsectl: " << status.message() << "\n";
  return kExitUsage;
}

int ReportInterrupted() {
  std::cerr << "sparsectl: interrupted; the request was cancelled\n";
  return kExitInterrupt;
}

absl::StatusOr<std::string> ReadText(const TextSource& source, const std::string& what) {
  if (source.text) return Utf8Text(*source.text, absl::StrCat("the ", what));
  if (!source.file.empty() && source.file != "-") {
    std::ifstream file(source.file, std::ios::binary);
    if (!file) return absl::NotFoundError(absl::StrCat("cannot read the file ", source.file));
    return ReadStream(file, source.file);
  }
  if (source.file.empty() && isatty(STDIN_FILENO) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("no ", what, ": give it as an argument, with --file, or on standard input"));
  }
  return ReadStream(std::cin, "standard input");
}

}  // namespace sparsed::client
