// SPDX-License-Identifier: Apache-2.0
// SafetensorsFile: the tensors of one .safetensors file, memory-mapped read-only.
//
//   ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open("model.safetensors"));
//   if (const TensorView* view = file.Find("lm_head.weight")) Use(view->data, view->bytes);
//
// Open believes nothing: after it, every view lies inside the file, has exactly the bytes its shape
// and dtype need, and shares no byte with another. Values are not looked at, so opening costs no
// more than reading the header.
// Ownership: the mapping lives as long as any SafetensorsFile or TensorView (or copy of one) does.
// Immutable after Open; any thread may use it. A file that another process shortens while it is
// mapped kills the reader with SIGBUS, as with every mapped file: replace checkpoints, never
// truncate them in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>
#include <absl/types/span.h>

namespace sparsed {

enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
};
std::string_view DTypeName(DType dtype);  // as in the file: "F32", "BF16", "BOOL"
size_t DTypeBytes(DType dtype);           // of one element

// One tensor's place in a mapped file. Little-endian, row-major, contiguous.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty = scalar; a dimension may be 0
  // May be UNALIGNED to the dtype (the format does not promise alignment): memcpy out of it, or
  // check the address before reading it through a float pointer.
  const std::byte* data = nullptr;
  size_t bytes = 0;                     // product(shape) * DTypeBytes(dtype)
  std::shared_ptr<const void> mapping;  // keeps `data` valid
};

// "[2,3]"; "[]" for a scalar.
std::string ShapeString(absl::Span<const int64_t> shape);

class SafetensorsFile {
 public:
  // NOT_FOUND: no such file. DATA_LOSS: the file is shorter than its header says (names expected
  // and actual size). INVALID_ARGUMENT: not a safetensors file, or one that breaks a rule of the
  // format. All name the path, and the tensor where one is wrong.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // The tensor, or null. The pointer lives as long as this object; a copy of the view longer.
  const TensorView* Find(std::string_view name) const;

  absl::Span<const TensorView> tensors() const { return tensors_; }  // in file order
  const std::string& path() const { return path_; }

 private:
  SafetensorsFile(std::string path, std::vector<TensorView> tensors);

  std::string path_;
  std::vector<TensorView> tensors_;
  absl::flat_hash_map<std::string, size_t> index_;  // name -> position in tensors_
};

}  // namespace sparsed
