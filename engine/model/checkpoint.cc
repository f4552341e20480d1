// SPDX-License-Identifier: Apache-2.0
#include "engine/model/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/strings/str_join.h>

#include "engine/base/concat.h"
#include "engine/base/status_macros.h"
#include "engine/model/json_file.h"

namespace sparsed {
namespace {

using Json = nlohmann::json;

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr JsonLimits kIndexLimits = {.bytes = 64u << 20, .depth = 8, .values = 1u << 20};

constexpr DType kWeightDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

bool Exists(const std::string& path) {
  std::error_code ignored;  // what cannot be looked at is reported when it is opened
  return std::filesystem::exists(path, ignored);
}

// A shard must lie in the model's folder, whatever the index says.
bool IsPlainFileName(std::string_view name) {
  if (name.empty() || name == "." || name.find("..") != std::string_view::npos) return false;
  return name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

// Tensor name -> shard file name, both checked.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ReadWeightMap(
    const std::string& index) {
  ASSIGN_OR_RETURN(const Json document, ReadJsonObject(index, kIndexLimits));
  const auto map = document.find("weight_map");
  if (map == document.end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError(
        Concat(index, ": weight_map: must be an object with at least one tensor"));
  }
  std::vector<std::pair<std::string, std::string>> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(Concat(index, ": weight_map of tensor ", Excerpt(tensor),
                                               " is ", Excerpt(shard.dump()),
                                               ": must be the plain name of a file in the folder"));
    }
    shards.emplace_back(tensor, shard.get<std::string>());
  }
  return shards;
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& dir) {
  const std::string single = Concat(dir, "/", kSingleFile);
  if (Exists(single)) return OpenSingle(single);
  const std::string index = Concat(dir, "/", kIndexFile);
  if (Exists(index)) return OpenShards(dir, index);
  return absl::NotFoundError(Concat(dir, ": has neither ", kSingleFile, " nor ", kIndexFile));
}

absl::StatusOr<Checkpoint> Checkpoint::OpenSingle(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.source_ = path;
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  checkpoint.files_.push_back(std::move(file));
  const absl::Span<const TensorView> tensors = checkpoint.files_[0].tensors();
  for (size_t i = 0; i < tensors.size(); ++i) checkpoint.Add({.file = 0, .tensor = i});
  return checkpoint;
}

absl::StatusOr<Checkpoint> Checkpoint::OpenShards(const std::string& dir,
                                                  const std::string& index) {
  Checkpoint checkpoint;
  checkpoint.source_ = index;
  ASSIGN_OR_RETURN(const auto shards, ReadWeightMap(index));
  absl::flat_hash_map<std::string, size_t> opened;  // shard name -> position in files_
  for (const auto& [tensor, shard] : shards) {
    const auto [place, is_new] = opened.try_emplace(shard, checkpoint.files_.size());
    if (is_new) {
      ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(Concat(dir, "/", shard)));
      checkpoint.files_.push_back(std::move(file));
    }
    const SafetensorsFile& file = checkpoint.files_[place->second];
    const TensorView* view = file.Find(tensor);
    if (view == nullptr) {
      return absl::DataLossError(Concat(file.path(), ": tensor ", Excerpt(tensor),
                                        ": is missing, though ", index, " places it here"));
    }
    checkpoint.Add(
        {.file = place->second, .tensor = static_cast<size_t>(view - file.tensors().data())});
  }
  return checkpoint;
}

void Checkpoint::Add(Place place) {
  const TensorView& view = files_[place.file].tensors()[place.tensor];
  tensors_.emplace(view.name, place);
  total_bytes_ += static_cast<int64_t>(view.bytes);
}

const TensorView* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(AbslView(name));
  if (found == tensors_.end()) return nullptr;
  return &files_[found->second.file].tensors()[found->second.tensor];
}

std::string_view Checkpoint::FileOf(std::string_view name) const {
  const auto found = tensors_.find(AbslView(name));
  return found == tensors_.end() ? std::string_view() : files_[found->second.file].path();
}

absl::StatusOr<TensorView> Checkpoint::Require(std::string_view name,
                                               absl::Span<const int64_t> shape) const {
  const TensorView* view = Find(name);
  if (view == nullptr) {
    return absl::NotFoundError(
        Concat(source_, ": tensor ", name, ": is missing, expected shape ", ShapeString(shape)));
  }
  if (shape != absl::MakeConstSpan(view->shape)) {
    return absl::InvalidArgumentError(Concat(FileOf(name), ": tensor ", name, ": shape is ",
                                             ShapeString(view->shape), ": expected ",
                                             ShapeString(shape)));
  }
  if (std::find(std::begin(kWeightDTypes), std::end(kWeightDTypes), view->dtype) ==
      std::end(kWeightDTypes)) {
    return absl::InvalidArgumentError(Concat(
        FileOf(name), ": tensor ", name, ": dtype is ", DTypeName(view->dtype), ": must be one of ",
        absl::StrJoin(kWeightDTypes, ", ",
                      [](std::string* out, DType dtype) { out->append(DTypeName(dtype)); })));
  }
  return *view;
}

std::vector<std::string> Checkpoint::Unknown(const absl::flat_hash_set<std::string>& known) const {
  std::vector<std::string> unknown;
  for (const SafetensorsFile& file : files_) {
    for (const TensorView& view : file.tensors()) {
      if (Find(view.name) != &view || !known.contains(view.name)) unknown.push_back(view.name);
    }
  }
  std::sort(unknown.begin(), unknown.end());
  return unknown;
}

}  // namespace sparsed
