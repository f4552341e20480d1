// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <string>

#include <absl/strings/escaping.h>
#include <absl/strings/str_format.h>

#include "client/commands/commands.h"
#include "client/json_output.h"

namespace sparsed::client {
namespace {

// One token a line, in quotes so that spaces are seen.
void Print(const v1::TokenizeResponse& response) {
  for (int i = 0; i < response.ids_size(); ++i) {
    const bool has_piece = i < response.pieces_size() && !response.pieces(i).empty();
    const std::string piece =
        has_piece ? absl::StrCat("\"", absl::Utf8SafeCHexEscape(response.pieces(i)), "\"")
                  : "(special)";
    std::cout << absl::StreamFormat("%6d  %s\n", response.ids(i), piece);
  }
}

int IdsToText(Session& session, const TokenizeOptions& options) {
  v1::DetokenizeRequest request;
  request.mutable_ids()->Add(options.ids.begin(), options.ids.end());
  request.set_skip_special(!options.keep_special);
  v1::DetokenizeResponse response;
  const grpc::Status status =
      Call(session, &v1::GenerationService::Stub::Detokenize, request, response);
  if (!status.ok()) return ReportFailure(session, status);
  std::cout << (session.options.json ? JsonLine(response) : response.text() + "\n");
  return kExitOk;
}

int TextToIds(Session& session, const TokenizeOptions& options) {
  const absl::StatusOr<std::string> text = ReadText(options.text, "text");
  if (!text.ok()) return ReportBadInput(text.status());
  v1::TokenizeRequest request;
  request.set_text(*text);
  v1::TokenizeResponse response;
  const grpc::Status status =
      Call(session, &v1::GenerationService::Stub::Tokenize, request, response);
  if (!status.ok()) return ReportFailure(session, status);
  if (session.options.json) {
    std::cout << JsonLine(response);
  } else {
    Print(response);
  }
  return kExitOk;
}

}  // namespace

int Run(Session& session, const TokenizeOptions& options) {
  return options.ids.empty() ? TextToIds(session, options) : IdsToText(session, options);
}

}  // namespace sparsed::client
