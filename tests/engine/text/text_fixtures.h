// SPDX-License-Identifier: Apache-2.0
// What the text tests share: the demo model's files, golden JSON, files made for one test.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

namespace sparsed::testing {

inline nlohmann::json ReadJson(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

inline std::string DemoModelFile(const std::string& name) {
  return SPARSED_SOURCE_DIR "/models/demo-llada-17m/" + name;
}

inline std::unique_ptr<Tokenizer> LoadDemoTokenizer() {
  auto tokenizer = Tokenizer::Load(DemoModelFile("tokenizer.json"));
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().ToString());
  return *std::move(tokenizer);
}

// A folder of the running test's own, removed with this object.
class TestFolder {
 public:
  TestFolder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(SPARSED_BINARY_DIR) / "test_files" /
            (std::string(test->test_suite_name()) + "." + test->name());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string Write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

inline std::string Repeat(std::string_view text, size_t count) {
  std::string repeated;
  repeated.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) repeated.append(text);
  return repeated;
}

}  // namespace sparsed::testing
