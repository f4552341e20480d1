// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "client/commands/commands.h"
#include "client/json_output.h"

namespace sparsed::client {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Reflection;

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

std::string FieldValue(const v1::Attention& attention, const FieldDescriptor& field) {
  const Reflection& reflection = *attention.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.GetString(attention, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrCat(reflection.GetDouble(attention, &field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(reflection.GetUInt32(attention, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(attention, &field) ? "true" : "false";
    default:
      break;
  }
  const auto& extent = static_cast<const v1::Extent3&>(reflection.GetMessage(attention, &field));
  return absl::StrCat(extent.t(), "x", extent.h(), "x", extent.w());
}

// The fields that make the preset, as one would override them; "" for one without (dense).
std::string AttentionFields(const v1::Attention& attention) {
  std::vector<const FieldDescriptor*> set;
  attention.GetReflection()->ListFields(attention, &set);
  std::vector<std::string> fields;
  for (const FieldDescriptor* field : set) {
    const std::string value = FieldValue(attention, *field);
    // What the preset is called, leaves out, or has like any other.
    if (field->name() == "preset" || field->name() == "guard" || value == "none") continue;
    if (value == "0" && field->name() != "skip" && field->name() != "sort_blocks") continue;
    fields.push_back(absl::StrCat(field->name(), " ", value));
  }
  return absl::StrJoin(fields, " · ");
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
  for (const v1::Preset& preset : model.presets()) {
    std::cout << "  " << preset.name() << "\n      " << preset.description() << "\n";
    const std::string fields = AttentionFields(preset.attention());
    if (!fields.empty()) std::cout << "      " << fields << "\n";
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
