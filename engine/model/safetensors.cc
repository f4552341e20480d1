// SPDX-License-Identifier: Apache-2.0
// The format: 8 bytes of little-endian header length, a JSON object {name: {dtype, shape,
// data_offsets: [begin, end)}}, then the data, which the tensors fill without gap or overlap.
#include "engine/model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include <absl/strings/str_join.h>

#include "engine/base/concat.h"
#include "engine/base/status_macros.h"
#include "engine/model/input_file.h"
#include "engine/model/json_file.h"

namespace sparsed {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr JsonLimits kHeaderLimits = {
    .bytes = kMaxHeaderBytes, .depth = 4, .values = 4u << 20};  // about 500,000 tensors
constexpr std::string_view kMetadata = "__metadata__";

struct DTypeRow {
  DType dtype;
  std::string_view name;
  size_t bytes;
};
constexpr DTypeRow kDTypes[] = {  // in the order of the enumeration
    {DType::kF64, "F64", 8},   {DType::kF32, "F32", 4}, {DType::kF16, "F16", 2},
    {DType::kBF16, "BF16", 2}, {DType::kI64, "I64", 8}, {DType::kI32, "I32", 4},
    {DType::kI16, "I16", 2},   {DType::kI8, "I8", 1},   {DType::kU64, "U64", 8},
    {DType::kU32, "U32", 4},   {DType::kU16, "U16", 2}, {DType::kU8, "U8", 1},
    {DType::kBool, "BOOL", 1}};

// A header entry before it is known to lie inside the file.
struct Entry {
  TensorView view;
  uint64_t begin = 0;  // from the start of the data
  uint64_t end = 0;
};

absl::Status Invalid(std::string_view path, std::string_view tensor, std::string_view message) {
  return absl::InvalidArgumentError(Concat(path, ": tensor ", Excerpt(tensor), ": ", message));
}

absl::Status Truncated(const InputFile& file, uint64_t expected) {
  return absl::DataLossError(Concat(file.path(), ": truncated: has ", file.size(),
                                    " bytes, must have at least ", expected));
}

// Non-negative and at most 2^63 - 1, or nothing.
std::optional<int64_t> Size(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const uint64_t number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::optional<std::vector<int64_t>> Sizes(const Json& entry, const char* field) {
  const auto found = entry.find(field);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const Json& value : *found) {
    const std::optional<int64_t> size = Size(value);
    if (!size) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

std::string FieldText(const Json& entry, const char* field) {
  const auto found = entry.find(field);
  if (found == entry.end()) return "absent";
  return Excerpt(found->dump());
}

// product(shape) * element bytes, or nothing if that exceeds 2^63 - 1.
std::optional<int64_t> TensorBytes(absl::Span<const int64_t> shape, DType dtype) {
  int64_t bytes = static_cast<int64_t>(DTypeBytes(dtype));
  for (const int64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::optional<DType> ParseDType(const Json& entry) {
  const auto found = entry.find("dtype");
  if (found == entry.end() || !found->is_string()) return std::nullopt;
  for (const DTypeRow& row : kDTypes) {
    if (row.name == found->get_ref<const std::string&>()) return row.dtype;
  }
  return std::nullopt;
}

absl::StatusOr<Entry> ParseEntry(const std::string& path, const std::string& name,
                                 const Json& json) {
  const auto invalid = [&](const char* field, std::string_view limit) {
    return Invalid(path, name, Concat(field, " is ", FieldText(json, field), ": ", limit));
  };
  if (!json.is_object()) return Invalid(path, name, "its entry is not a JSON object");
  const std::optional<DType> dtype = ParseDType(json);
  if (!dtype) {
    return invalid("dtype",
                   Concat("must be one of ",
                          absl::StrJoin(kDTypes, ", ", [](std::string* out, const DTypeRow& row) {
                            out->append(row.name);
                          })));
  }
  std::optional<std::vector<int64_t>> shape = Sizes(json, "shape");
  if (!shape) return invalid("shape", "must be an array of integers in 0..2^63-1");
  const std::optional<std::vector<int64_t>> offsets = Sizes(json, "data_offsets");
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return invalid("data_offsets", "must be [begin, end] with 0 <= begin <= end");
  }
  const std::optional<int64_t> bytes = TensorBytes(*shape, *dtype);
  if (!bytes) return invalid("shape", "its bytes must fit 63 bits");
  if ((*offsets)[1] - (*offsets)[0] != *bytes) {
    return invalid("data_offsets", Concat("must span the ", *bytes, " bytes of ", DTypeName(*dtype),
                                          ShapeString(*shape)));
  }
  Entry entry;
  entry.view.name = name;
  entry.view.dtype = *dtype;
  entry.view.shape = *std::move(shape);
  entry.view.bytes = static_cast<size_t>(*bytes);
  entry.begin = static_cast<uint64_t>((*offsets)[0]);
  entry.end = static_cast<uint64_t>((*offsets)[1]);
  return entry;
}

absl::StatusOr<std::vector<Entry>> ParseEntries(const std::string& path, const Json& header) {
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name == kMetadata) continue;
    ASSIGN_OR_RETURN(Entry entry, ParseEntry(path, name, json));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.view.name) < std::tie(b.begin, b.end, b.view.name);
  });
  return entries;
}

// Bytes of data the entries, which are sorted, fill; an error if they overlap or leave a gap.
absl::StatusOr<uint64_t> FilledBytes(const std::string& path, absl::Span<const Entry> entries) {
  uint64_t filled = 0;
  std::string_view previous = "the start of the data";
  for (const Entry& entry : entries) {
    if (entry.begin != filled) {
      const std::string_view fault = entry.begin < filled ? "overlaps" : "leaves a gap after";
      return Invalid(path, entry.view.name,
                     Concat("begins at byte ", entry.begin, " of the data and ", fault, " ",
                            Excerpt(previous), ", which ends at ", filled));
    }
    filled = entry.end;
    previous = entry.view.name;
  }
  return filled;
}

uint64_t LittleEndian64(const std::byte* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  return value;
}

// The JSON text; its bounds have been checked against the file.
absl::StatusOr<std::string_view> HeaderText(const InputFile& file, const std::byte* data) {
  const uint64_t length = LittleEndian64(data);
  if (length > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(Concat(file.path(), ": header length is ", length,
                                             " bytes: must be at most ", kMaxHeaderBytes,
                                             " (not a safetensors file?)"));
  }
  if (kLengthBytes + length > file.size()) return Truncated(file, kLengthBytes + length);
  const std::string_view text(reinterpret_cast<const char*>(data + kLengthBytes), length);
  if (text.empty() || text.front() != '{') {
    return absl::InvalidArgumentError(Concat(file.path(), ": its header does not start with '{'"));
  }
  return text;
}

}  // namespace

std::string_view DTypeName(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }
size_t DTypeBytes(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bytes; }

std::string ShapeString(absl::Span<const int64_t> shape) {
  return Concat("[", absl::StrJoin(shape, ","), "]");
}

SafetensorsFile::SafetensorsFile(std::string path, std::vector<TensorView> tensors)
    : path_(std::move(path)), tensors_(std::move(tensors)) {
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.size() < kLengthBytes) return Truncated(file, kLengthBytes);
  ASSIGN_OR_RETURN(const std::shared_ptr<const std::byte> mapping, file.Map());
  ASSIGN_OR_RETURN(const std::string_view text, HeaderText(file, mapping.get()));
  ASSIGN_OR_RETURN(const Json header, ParseJsonObject(text, path, kHeaderLimits));
  ASSIGN_OR_RETURN(std::vector<Entry> entries, ParseEntries(path, header));
  ASSIGN_OR_RETURN(const uint64_t filled, FilledBytes(path, entries));
  const uint64_t data_begin = kLengthBytes + text.size();
  const uint64_t data_bytes = file.size() - data_begin;
  if (filled > data_bytes) return Truncated(file, data_begin + filled);
  if (filled < data_bytes) {
    return absl::InvalidArgumentError(Concat(path, ": size is ", file.size(), " bytes: must ",
                                             "be the ", data_begin + filled,
                                             " that its header describes"));
  }
  std::vector<TensorView> tensors;
  tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.view.data = mapping.get() + data_begin + entry.begin;
    entry.view.mapping = mapping;
    tensors.push_back(std::move(entry.view));
  }
  return SafetensorsFile(path, std::move(tensors));
}

const TensorView* SafetensorsFile::Find(std::string_view name) const {
  const auto found = index_.find(AbslView(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace sparsed
