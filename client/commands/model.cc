// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "client/commands/commands.h"
#include "client/json_output.h"

namespace sparsed::client {
namespace {

std::string FormatCount(uint64_t n) {
  const auto x = static_cast<double>(n);
  if (x >= 1e9) return absl::StrFormat("%.3g billion", x / 1e9);
  if (x >= 1e6) return absl::StrFormat("%.3g million", x / 1e6);
  return absl::StrCat(n);
}

void PrintDefaults(const v1::Resolved& defaults) {
  const v1::Decoding& decoding = defaults.decoding();
  const bool random = decoding.remasking() == v1::REMASKING_RANDOM;
  std::cout << absl::StreamFormat("defaults: gen_length %d · steps %d · block_length %d\n",
                                  decoding.gen_length(), decoding.steps(), decoding.block_length())
            << absl::StreamFormat("          temperature %g · remasking %s · preset %s\n",
                                  decoding.temperature(), random ? "random" : "low_confidence",
                                  defaults.attention().preset());
}

// The overridable fields a preset has; "" for one without (dense).
std::string AttentionFields(const v1::Attention& attention) {
  std::string fields;
  if (attention.has_ratio()) absl::StrAppendFormat(&fields, " ratio %g", attention.ratio());
  if (attention.has_skip()) absl::StrAppendFormat(&fields, " skip %g", attention.skip());
  if (attention.has_block_tokens()) {
    absl::StrAppendFormat(&fields, " block_tokens %d", attention.block_tokens());
  }
  return fields.empty() ? "" : absl::StrCat("  [", fields.substr(1), "]");
}

void Print(const v1::GetModelResponse& model) {
  std::cout << absl::StreamFormat("%s: %s, %s parameters, %s on %s\n", model.name(), model.family(),
                                  FormatCount(model.parameters()), model.dtype(), model.device())
            << absl::StreamFormat("  layers         %d\n", model.layers())
            << absl::StreamFormat("  heads          %d (%d for keys and values) x %d\n",
                                  model.heads(), model.kv_heads(), model.head_dim())
            << absl::StreamFormat("  vocabulary     %d (mask %d, end %s)\n",
                                  model.vocabulary_size(), model.mask_token(),
                                  absl::StrJoin(model.end_tokens(), " "))
            << absl::StreamFormat("  max length     %d tokens, prompt and generation\n",
                                  model.max_length())
            << "  chat template  " << (model.chat_template() ? "yes" : "no") << "\n"
            << "  server         " << model.server_version() << "\n";
  PrintDefaults(model.defaults());
  std::cout << "presets:\n";
  size_t width = 0;
  for (const v1::Preset& preset : model.presets()) width = std::max(width, preset.name().size());
  for (const v1::Preset& preset : model.presets()) {
    std::cout << absl::StreamFormat("  %-*s  %s%s\n", static_cast<int>(width), preset.name(),
                                    preset.description(), AttentionFields(preset.attention()));
  }
}

}  // namespace

int Run(Session& session, const ModelOptions& /*options*/) {
  v1::GetModelResponse model;
  const grpc::Status status =
      Call(session, &v1::GenerationService::Stub::GetModel, v1::GetModelRequest(), model);
  if (!status.ok()) return ReportFailure(session, status);
  if (session.options.json) {
    std::cout << JsonLine(model);
  } else {
    Print(model);
  }
  return kExitOk;
}

}  // namespace sparsed::client
