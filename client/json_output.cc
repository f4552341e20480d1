// SPDX-License-Identifier: Apache-2.0
#include "client/json_output.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <google/rpc/error_details.pb.h>

#include "client/failure.h"

namespace sparsed::client {
namespace {

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // Fails only for an Any of unknown type, which no caller passes.
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  return status.ok() ? json : "{}";
}

google::protobuf::Value StringValue(const std::string& text) {
  google::protobuf::Value value;
  value.set_string_value(text);
  return value;
}

// The detail as JSON with its "@type"; nothing if this program does not know its type.
template <class Detail>
void AppendDetail(const google::protobuf::Any& any, google::protobuf::ListValue& details) {
  Detail detail;
  if (!any.UnpackTo(&detail)) return;
  google::protobuf::Struct fields;
  if (!google::protobuf::util::JsonStringToMessage(ToJson(detail), &fields).ok()) return;
  (*fields.mutable_fields())["@type"] = StringValue(any.type_url());
  *details.add_values()->mutable_struct_value() = std::move(fields);
}

}  // namespace

std::string JsonLine(const google::protobuf::Message& message) { return ToJson(message) + "\n"; }

std::string JsonErrorLine(const grpc::Status& status) {
  google::protobuf::Struct line;
  auto& error = *(*line.mutable_fields())["error"].mutable_struct_value()->mutable_fields();
  error["code"] = StringValue(CodeName(status.error_code()));
  error["message"] = StringValue(status.error_message());
  google::protobuf::ListValue& details = *error["details"].mutable_list_value();
  const google::rpc::Status rich = RichStatus(status);
  for (const google::protobuf::Any& any : rich.details()) {
    AppendDetail<google::rpc::BadRequest>(any, details);
    AppendDetail<google::rpc::RetryInfo>(any, details);
  }
  return JsonLine(line);
}

}  // namespace sparsed::client
