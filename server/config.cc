// SPDX-License-Identifier: Apache-2.0
#include "server/config.h"

#include <cctype>
#include <charconv>
#include <functional>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>

#include "engine/attention/plan.h"
#include "server/config_sources.h"
#include "server/version.h"

namespace sparsed {
namespace {

std::optional<int64_t> ParseInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A check that returns what is wrong with a value, or "".
using Check = std::function<std::string(std::string&)>;

Check IntegerIn(int64_t low, int64_t high) {
  return [low, high](std::string& text) -> std::string {
    const std::optional<int64_t> value = ParseInteger(text);
    if (value && *value >= low && *value <= high) return "";
    return absl::StrCat("\"", text, "\" is not a whole number in ", low, "..", high);
  };
}

std::string CheckAddress(std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos && colon > 0) {
    const std::optional<int64_t> port = ParseInteger(text.substr(colon + 1));
    if (port && *port >= 0 && *port <= 65535) return "";
  }
  return absl::StrCat("\"", text, "\" is not HOST:PORT with a port in 0..65535");
}

std::string CheckPreset(std::string& text) {
  const auto preset = FindAttentionPreset(text);
  return preset.ok() ? "" : std::string(preset.status().message());
}

Check OneOf(std::vector<std::string> known) {
  return [known = std::move(known)](std::string& text) -> std::string {
    for (const std::string& value : known) {
      if (value == text) return "";
    }
    return absl::StrCat("\"", text, "\" is not one of ", CLI::detail::join(known, ", "));
  };
}

// "--max-rows" -> "SPARSED_MAX_ROWS".
std::string EnvironmentName(std::string_view flag) {
  std::string name = "SPARSED_";
  for (const char c : flag.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

class Flags {
 public:
  Flags(CLI::App* app, const ConfigSources* sources) : app_(app), sources_(sources) {}

  template <class Value>
  CLI::Option* Add(const char* flag, Value* value, const char* what, const char* metavar,
                   const Check& check = nullptr) {
    CLI::Option* option = app_->add_option(flag, *value, what);
    option->envname(EnvironmentName(flag))->option_text(Describe(metavar, *value));
    if (check) option->check(CLI::Validator(NamingSource(option, check), "", ""));
    return option;
  }

 private:
  Check NamingSource(const CLI::Option* option, const Check& check) const {
    return [sources = sources_, option, check](std::string& text) -> std::string {
      const std::string wrong = check(text);
      return wrong.empty() ? "" : wrong + sources->Describe(*option);
    };
  }

  template <class Value>
  static std::string Describe(const char* metavar, const Value& value) {
    const std::string standard = absl::StrCat(value);
    return standard.empty() ? metavar : absl::StrCat(metavar, " [", standard, "]");
  }

  CLI::App* const app_;
  const ConfigSources* const sources_;
};

void AddPlaces(Flags* flags, ServerConfig* config) {
  flags->Add("--model", &config->model_dir, "Hugging Face folder of the model", "DIR")->required();
  flags->Add("--listen", &config->listen, "gRPC address; port 0 takes a free one", "HOST:PORT",
             CheckAddress);
  flags->Add("--http-listen", &config->http_listen, "Address of /metrics, /healthz and /readyz",
             "HOST:PORT", CheckAddress);
  flags->Add("--port-file", &config->port_file,
             "Write the bound ports to this file as JSON, once requests are served", "FILE");
}

void AddLimits(Flags* flags, ServerConfig* config) {
  flags->Add("--max-rows", &config->max_rows, "Requests that run at the same time", "N",
             IntegerIn(1, 4096));
  flags->Add("--max-queue", &config->max_queue, "Requests that may wait; more are refused", "N",
             IntegerIn(1, 1 << 20));
  flags->Add("--max-batch-tokens", &config->max_batch_tokens,
             "Canvas tokens in one step; one longer request runs alone", "N",
             IntegerIn(1, int64_t{1} << 31));
  flags->Add("--mask-budget-mib", &config->mask_budget_mib, "Memory for block masks", "MIB",
             IntegerIn(1, 1 << 20));
  flags->Add("--max-message-mib", &config->max_message_mib, "Largest request", "MIB",
             IntegerIn(1, 1024));
  flags->Add("--threads", &config->threads, "Threads of one step; 0 = all cores", "N",
             IntegerIn(0, 4096));
}

void AddBehaviour(Flags* flags, ServerConfig* config) {
  flags->Add("--drain-seconds", &config->drain_seconds,
             "After SIGTERM, time for what is running to finish", "S", IntegerIn(0, 86400));
  flags->Add("--stall-seconds", &config->stall_seconds,
             "A stream is cancelled when its client reads nothing for so long", "S",
             IntegerIn(1, 86400));
  flags->Add("--default-preset", &config->default_preset, "Attention of requests that name none",
             "NAME", CheckPreset);
  flags->Add("--log-level", &config->log_level, "debug, info, warning or error", "LEVEL",
             OneOf({"debug", "info", "warning", "error"}));
}

// CLI11 may pass a message over several lines; an error of ours is one.
std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

}  // namespace

ParsedConfig ParseConfig(int argc, const char* const* argv) {
  ServerConfig config;
  CLI::App app("sparsed serves masked diffusion language models with sparse attention over gRPC.",
               "sparsed");
  app.footer(
      "Every flag can also stand in the file (max-rows = 4) and in the environment\n"
      "(SPARSED_MAX_ROWS=4). A flag wins over the file, the file over the environment.");
  ConfigSources sources(argc, argv);
  app.set_config("--config", "", "Read flags from a TOML or INI file");
  app.config_formatter(std::make_shared<ConfigFileReader>(&app, &sources));
  app.set_version_flag("--version", absl::StrCat("sparsed ", ServerVersion()));
  Flags flags(&app, &sources);
  AddPlaces(&flags, &config);
  AddLimits(&flags, &config);
  AddBehaviour(&flags, &config);
  std::string attention_guard = "true";
  flags.Add("--attention-guard", &attention_guard,
            "Run dense where sparse attention would not be faster, as requests allow", "BOOL",
            OneOf({"true", "false"}));
  std::string log_format = "text";
  flags.Add("--log-format", &log_format, "text or json", "FORMAT", OneOf({"text", "json"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return ConfigExit{0, app.help()};
  } catch (const CLI::CallForVersion& version) {
    return ConfigExit{0, absl::StrCat(version.what(), "\n")};
  } catch (const CLI::ParseError& error) {
    return ConfigExit{2, absl::StrCat("sparsed: ", OneLine(error.what()), " (see --help)")};
  }
  config.attention_guard = attention_guard == "true";
  config.log_format = log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  return config;
}

}  // namespace sparsed
