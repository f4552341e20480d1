// SPDX-License-Identifier: Apache-2.0
// Where the value of a flag came from, so that errors can name the file or the variable.
//
//   ConfigSources sources(argc, argv);
//   app.config_formatter(std::make_shared<ConfigFileReader>(&app, &sources));
//   … a check of option's value failed: message + sources.Describe(*option) …
//
// Throws what CLI11 expects, CLI::ParseError. One thread.
#pragma once

#include <istream>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace sparsed {

class ConfigSources {
 public:
  ConfigSources(int argc, const char* const* argv) : arguments_(argv, argv + argc) {}

  void AddFileKey(const std::string& flag, const std::string& path) { paths_[flag] = path; }

  // " (from sparsed.toml)" or " (from SPARSED_MAX_ROWS)"; "" for a value of the command line.
  std::string Describe(const CLI::Option& option) const;

 private:
  const std::vector<std::string> arguments_;
  std::map<std::string, std::string> paths_;  // of the file that sets a flag
};

// Reads TOML or INI and refuses what is not a flag, naming file and key. The pointers must outlive
// it.
class ConfigFileReader final : public CLI::ConfigTOML {
 public:
  ConfigFileReader(const CLI::App* app, ConfigSources* sources) : app_(app), sources_(sources) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& in) const override;

 private:
  void Check(const CLI::ConfigItem& item, const std::string& path) const;

  const CLI::App* const app_;
  ConfigSources* const sources_;
};

}  // namespace sparsed
