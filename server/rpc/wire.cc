// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/wire.h"

#include <optional>
#include <vector>

#include <absl/strings/str_cat.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/slice.h>

#include "engine/base/invalid_field.h"
#include "engine/base/status_macros.h"
#include "engine/text/tokenizer.h"

namespace sparsed {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

// Walks bytes as a message of type `type` and reports the first text field that is not UTF-8.
// The generated parsers only say that something is wrong.
absl::Status FindBadText(const UnknownFieldSet& fields, const Descriptor& type,
                         const std::string& prefix) {
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& value = fields.field(i);
    const FieldDescriptor* field = type.FindFieldByNumber(value.number());
    if (field == nullptr || value.type() != UnknownField::TYPE_LENGTH_DELIMITED) continue;
    const std::string path = absl::StrCat(prefix, field->name());
    const std::string& bytes = value.length_delimited();
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      if (const std::optional<size_t> offset = FindInvalidUtf8(bytes)) {
        return InvalidField(path, "not UTF-8", absl::StrCat("bad byte at offset ", *offset));
      }
    } else if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
      UnknownFieldSet inner;
      if (!inner.ParseFromString(bytes)) continue;
      RETURN_IF_ERROR(FindBadText(inner, *field->message_type(), absl::StrCat(path, ".")));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseMessageBytes(const std::string& bytes, google::protobuf::Message* message) {
  if (message->ParseFromString(bytes)) return absl::OkStatus();
  const Descriptor& type = *message->GetDescriptor();
  UnknownFieldSet fields;
  if (fields.ParseFromString(bytes)) RETURN_IF_ERROR(FindBadText(fields, type, ""));
  return absl::InvalidArgumentError(
      absl::StrCat("the request's bytes are not a ", type.full_name(), " message"));
}

absl::Status ParseMessage(const grpc::ByteBuffer& buffer, google::protobuf::Message* message) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return absl::InternalError("the request could not be read");
  std::string bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return ParseMessageBytes(bytes, message);
}

grpc::ByteBuffer SerializeMessage(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace sparsed
