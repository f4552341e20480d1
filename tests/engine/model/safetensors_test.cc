// SPDX-License-Identifier: Apache-2.0
#include "engine/model/safetensors.h"

#include <cstring>

#include "tests/engine/model/model_files.h"
#include "tests/support/golden.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::sparsed::testing::LittleEndian64;
using ::sparsed::testing::Safetensors;
using ::sparsed::testing::StatusIs;
using ::sparsed::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

class SafetensorsTest : public ::testing::Test {
 protected:
  absl::StatusOr<SafetensorsFile> OpenBytes(std::string_view bytes) {
    return SafetensorsFile::Open(dir_.Write("t.safetensors", bytes));
  }
  absl::StatusOr<SafetensorsFile> Open(std::string_view header, size_t data_bytes) {
    return OpenBytes(Safetensors(header, std::string(data_bytes, '\1')));
  }
  std::string path() const { return dir_.File("t.safetensors"); }

  const TempDir dir_;
};

// A one-tensor header with the given entry.
std::string Header(std::string_view entry) { return "{\"w\":" + std::string(entry) + "}"; }

TEST_F(SafetensorsTest, GivesNamesShapesAndBytes) {
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       OpenBytes(Safetensors(R"({"__metadata__":{"format":"pt"},
      "b":{"dtype":"I16","shape":[2,1],"data_offsets":[2,6]},
      "a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}   )",
                                             std::string_view("\x80\x3f\x01\x00\x02\x00", 6))));
  ASSERT_EQ(file.tensors().size(), 2);
  EXPECT_EQ(file.tensors()[0].name, "a");
  const TensorView* b = file.Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::kI16);
  EXPECT_THAT(b->shape, ElementsAre(2, 1));
  ASSERT_EQ(b->bytes, 4);
  int16_t values[2];
  std::memcpy(values, b->data, sizeof(values));
  EXPECT_THAT(values, ElementsAre(1, 2));
  EXPECT_EQ(file.Find("__metadata__"), nullptr);
  EXPECT_EQ(file.Find("c"), nullptr);
}

TEST_F(SafetensorsTest, KnowsEveryDType) {
  const std::pair<std::string, size_t> dtypes[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2},
      {"I8", 1},  {"U64", 8}, {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1}};
  for (const auto& [name, bytes] : dtypes) {
    const std::string entry = R"({"dtype":")" + name + R"(","shape":[3],"data_offsets":[0,)" +
                              std::to_string(3 * bytes) + "]}";
    ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, Open(Header(entry), 3 * bytes));
    EXPECT_EQ(DTypeName(file.tensors()[0].dtype), name);
    EXPECT_EQ(file.tensors()[0].bytes, 3 * bytes);
  }
}

TEST_F(SafetensorsTest, ViewsOutliveTheFileObject) {
  TensorView view;
  {
    ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                         Open(Header(R"({"dtype":"U8","shape":[3],"data_offsets":[0,3]})"), 3));
    view = *file.Find("w");
  }
  EXPECT_EQ(view.data[2], std::byte{1});
}

TEST_F(SafetensorsTest, AcceptsNoTensorsAndEmptyTensors) {
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile none, Open("{}", 0));
  EXPECT_THAT(none.tensors(), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile empty,
                       Open(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                                "e":{"dtype":"F32","shape":[0,7],"data_offsets":[2,2]},
                                "b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                            3));
  EXPECT_EQ(empty.Find("e")->bytes, 0);
}

TEST_F(SafetensorsTest, MissingFileIsNotFound) {
  EXPECT_THAT(SafetensorsFile::Open("/nowhere/x.safetensors"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/x.safetensors")));
}

TEST_F(SafetensorsTest, TruncationNamesFileExpectedAndActualSize) {
  const std::string header = Header(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})");
  const std::string whole = Safetensors(header, std::string(16, '\0'));
  const auto message = [&](size_t has, size_t expected) {
    return path() + ": truncated: has " + std::to_string(has) + " bytes, must have at least " +
           std::to_string(expected);
  };
  for (size_t size = 0; size < whole.size(); ++size) {
    const size_t data_begin = 8 + header.size();
    const size_t expected = size < 8 ? 8 : size < data_begin ? data_begin : whole.size();
    EXPECT_THAT(OpenBytes(whole.substr(0, size)), StatusIs(kDataLoss, message(size, expected)));
  }
}

TEST_F(SafetensorsTest, HeaderLengthIsLimited) {
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}}) {
    EXPECT_THAT(OpenBytes(LittleEndian64(length) + "{}"),
                StatusIs(kInvalid, AllOf(HasSubstr(path()), HasSubstr(std::to_string(length)),
                                         HasSubstr("at most 100000000"))));
  }
  EXPECT_THAT(OpenBytes(LittleEndian64(100'000'000) + "{}"),
              StatusIs(kDataLoss, HasSubstr("must have at least 100000008")));
}

TEST_F(SafetensorsTest, HeaderMustBeAnObject) {
  EXPECT_THAT(Open("", 0), StatusIs(kInvalid, HasSubstr("does not start with '{'")));
  EXPECT_THAT(Open(" {}", 0), StatusIs(kInvalid, HasSubstr("does not start with '{'")));
  EXPECT_THAT(Open("{\"w\":", 0), StatusIs(kInvalid, HasSubstr(path() + ": w: ")));
  EXPECT_THAT(Open("{\"w\":[[[[1]]]]}", 0), StatusIs(kInvalid, HasSubstr("nested deeper")));
  EXPECT_THAT(Open("{\"w\":7}", 0),
              StatusIs(kInvalid, path() + ": tensor w: its entry is not a JSON object"));
}

TEST_F(SafetensorsTest, DuplicateNamesAreRefused) {
  EXPECT_THAT(Open(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                       "w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                   2),
              StatusIs(kInvalid, path() + ": w: is given twice"));
}

TEST_F(SafetensorsTest, TrailingBytesAreRefused) {
  EXPECT_THAT(Open(Header(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})"), 2),
              StatusIs(kInvalid, AllOf(HasSubstr(path()), HasSubstr("must be the"))));
}

TEST_F(SafetensorsTest, OverlapsAndGapsNameBothTensors) {
  const std::string first = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)";
  EXPECT_THAT(Open(first + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})", 7),
              StatusIs(kInvalid, AllOf(HasSubstr("tensor b: begins at byte 3"),
                                       HasSubstr("overlaps a, which ends at 4"))));
  EXPECT_THAT(Open(first + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4),
              StatusIs(kInvalid, HasSubstr("overlaps a")));
  EXPECT_THAT(Open(first + R"("b":{"dtype":"U8","shape":[2],"data_offsets":[5,7]}})", 7),
              StatusIs(kInvalid, HasSubstr("leaves a gap after a")));
  EXPECT_THAT(Open(Header(R"({"dtype":"U8","shape":[1],"data_offsets":[1,2]})"), 2),
              StatusIs(kInvalid, HasSubstr("leaves a gap after the start of the data")));
}

TEST_F(SafetensorsTest, OffsetsBeyondTheFileAreTruncation) {
  EXPECT_THAT(Open(Header(R"({"dtype":"U8","shape":[9223372036854775807],
                              "data_offsets":[0,9223372036854775807]})"),
                   4),
              StatusIs(kDataLoss, HasSubstr("truncated")));
}

struct BadEntry {
  std::string entry;
  std::string message;
};
class SafetensorsEntryTest : public SafetensorsTest,
                             public ::testing::WithParamInterface<BadEntry> {};

TEST_P(SafetensorsEntryTest, IsRefusedByTensorAndField) {
  EXPECT_THAT(
      Open(Header(GetParam().entry), 8),
      StatusIs(kInvalid, AllOf(HasSubstr(path() + ": tensor w: "), HasSubstr(GetParam().message))));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, SafetensorsEntryTest,
    ::testing::Values(
        BadEntry{R"({"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]})",
                 "dtype is \"F8_E4M3\": must be one of F64, F32, F16, BF16, I64"},
        BadEntry{R"({"dtype":5,"shape":[8],"data_offsets":[0,8]})", "dtype is 5"},
        BadEntry{R"({"shape":[8],"data_offsets":[0,8]})", "dtype is absent"},
        BadEntry{R"({"dtype":"U8","data_offsets":[0,8]})", "shape is absent"},
        BadEntry{R"({"dtype":"U8","shape":8,"data_offsets":[0,8]})", "shape is 8"},
        BadEntry{R"({"dtype":"U8","shape":[-8],"data_offsets":[0,8]})", "shape is [-8]"},
        BadEntry{R"({"dtype":"U8","shape":[8.0],"data_offsets":[0,8]})", "shape is [8.0]"},
        BadEntry{R"({"dtype":"U8","shape":["8"],"data_offsets":[0,8]})", "shape is [\"8\"]"},
        BadEntry{R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8]})",
                 "must be an array of integers in 0..2^63-1"},
        // 2^61 * 8 bytes and 2^32 * 2^32 wrap to 0 in 64 bits.
        BadEntry{R"({"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]})",
                 "its bytes must fit 63 bits"},
        BadEntry{R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})",
                 "its bytes must fit 63 bits"},
        BadEntry{R"({"dtype":"U8","shape":[8]})", "data_offsets is absent"},
        BadEntry{R"({"dtype":"U8","shape":[8],"data_offsets":[8]})", "data_offsets is [8]"},
        BadEntry{R"({"dtype":"U8","shape":[8],"data_offsets":[0,4,8]})", "[begin, end]"},
        BadEntry{R"({"dtype":"U8","shape":[8],"data_offsets":[8,0]})", "begin <= end"},
        BadEntry{R"({"dtype":"U8","shape":[8],"data_offsets":[-1,7]})", "data_offsets is [-1,7]"},
        BadEntry{R"({"dtype":"U8","shape":[8],"data_offsets":[0,18446744073709551615]})",
                 "data_offsets is [0,18446744073709551615]"},
        BadEntry{R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})",
                 "data_offsets is [0,8]: must span the 12 bytes of F32[3]"}));

TEST(SafetensorsGoldenTest, EveryGoldenFileOpens) {
  const std::filesystem::path root = sparsed::testing::GoldenDir();
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "no golden data; set SPARSED_GOLDEN_DIR";
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".safetensors") continue;
    ++files;
    ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(entry.path().string()));
    EXPECT_FALSE(file.tensors().empty()) << entry.path();
    for (const TensorView& view : file.tensors()) EXPECT_EQ(file.Find(view.name), &view);
  }
  EXPECT_GT(files, 0) << root;
}

}  // namespace
}  // namespace sparsed
