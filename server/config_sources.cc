// SPDX-License-Identifier: Apache-2.0
#include "server/config_sources.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace sparsed {

std::string ConfigSources::Describe(const CLI::Option& option) const {
  const std::string flag = option.get_name();
  for (const std::string& argument : arguments_) {
    if (argument == flag || absl::StartsWith(argument, flag + "=")) return "";
  }
  const auto path = paths_.find(flag);
  const std::string& source = path == paths_.end() ? option.get_envname() : path->second;
  return absl::StrCat(" (from ", source, ")");
}

std::vector<CLI::ConfigItem> ConfigFileReader::from_config(std::istream& in) const {
  const auto path = app_->get_config_ptr()->as<std::string>();
  std::vector<CLI::ConfigItem> settings = CLI::ConfigTOML::from_config(in);
  for (const CLI::ConfigItem& item : settings) {
    Check(item, path);
    sources_->AddFileKey("--" + item.name, path);
  }
  return settings;
}

void ConfigFileReader::Check(const CLI::ConfigItem& item, const std::string& path) const {
  if (!item.parents.empty()) {
    const std::string section = CLI::detail::join(item.parents, ".");
    throw CLI::ConfigError(absl::StrCat(path, ": unknown section [", section, "]"));
  }
  const CLI::Option* option = app_->get_option_no_throw("--" + item.name);
  if (option == nullptr || !option->get_configurable()) {
    throw CLI::ConfigError(absl::StrCat(path, ": unknown key \"", item.name, "\""));
  }
}

}  // namespace sparsed
