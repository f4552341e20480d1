// SPDX-License-Identifier: Apache-2.0
#include "client/options.h"

#include <charconv>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>

#include "client/attention_options.h"
#include "client/exit_code.h"
#include "client/utf8.h"

namespace sparsed::client {
namespace {

// What the callbacks of the command line fill in; the chosen command's part becomes the result.
struct Parsed {
  GlobalOptions global;
  GenerateOptions generate;
  ChatOptions chat;
  HealthOptions health;
  TokenizeOptions tokenize;
  CancelOptions cancel;
};

// Why `server` is no HOST:PORT, or "" if it is one.
std::string CheckServer(const std::string& server) {
  const size_t colon = server.rfind(':');
  uint32_t port = 0;
  if (colon != std::string::npos && colon > 0) {
    const char* end = server.data() + server.size();
    const auto [stop, error] = std::from_chars(server.data() + colon + 1, end, port);
    if (error == std::errc() && stop == end && port >= 1 && port <= 65535) return "";
  }
  return absl::StrCat("'", server, "' is not HOST:PORT with a port from 1 to 65535");
}

// CLI::Range lets NaN pass.
std::string CheckTimeout(const std::string& text) {
  double seconds = 0;
  const bool number = CLI::detail::lexical_cast(text, seconds);
  if (number && seconds >= 0.001 && seconds <= 1e6) return "";
  return absl::StrCat("'", text, "' is not a number of seconds from 0.001 to 1e6");
}

// Why `text` cannot go into a request, or "" if it can.
std::string CheckText(const std::string& text) {
  return std::string(CheckUtf8(text, "the value").message());
}

void AddGlobal(CLI::App& app, GlobalOptions& global) {
  app.add_option("--server", global.server, "Where the server listens, HOST:PORT")
      ->envname("SPARSED_SERVER")
      ->capture_default_str()
      ->check(CheckServer, "");
  app.add_option_function<double>(
         "--timeout", [&global](double seconds) { global.timeout_seconds = seconds; },
         "Give up after so many seconds (generate and chat: never; else: 10)")
      ->check(CheckTimeout, "");
  app.add_flag("--json", global.json, "Print JSON: one object, or one a line for streams");
  app.add_flag_callback(
      "--no-color", [&global] { global.color = false; }, "No colours (also: NO_COLOR is set)");
  app.add_flag("-v,--verbose", global.verbose,
               "Show progress and a summary when piped, too, and each layer's mask");
}

void AddText(CLI::App& command, const std::string& name, TextSource& source) {
  auto* text = command.add_option_function<std::string>(
      name, [&source](const std::string& value) { source.text = value; },
      absl::StrCat("The ", name, " (else --file, else standard input)"));
  command.add_option("-f,--file", source.file, absl::StrCat("Read the ", name, " from a file"))
      ->excludes(text);
}

void AddDecoding(CLI::App& command, v1::GenerateRequest& request) {
  // Each option is set in the request only when given, so that the server's defaults hold.
  v1::Decoding* (v1::GenerateRequest::*decoding)() = &v1::GenerateRequest::mutable_decoding;
  const auto number = [&](const char* name, void (v1::Decoding::*set)(uint32_t), const char* help) {
    command
        .add_option_function<uint32_t>(
            name, [&request, decoding, set](uint32_t n) { ((request.*decoding)()->*set)(n); }, help)
        ->group("Decoding");
  };
  const auto real = [&](const char* name, void (v1::Decoding::*set)(double), const char* help) {
    command
        .add_option_function<double>(
            name, [&request, decoding, set](double x) { ((request.*decoding)()->*set)(x); }, help)
        ->group("Decoding");
  };
  number("--gen-length", &v1::Decoding::set_gen_length, "Tokens to generate");
  number("--steps", &v1::Decoding::set_steps, "Denoising steps");
  number("--block-length", &v1::Decoding::set_block_length,
         "Tokens per block; blocks resolve from left to right");
  real("--temperature", &v1::Decoding::set_temperature, "0 takes the most probable token");
  real("--cfg-scale", &v1::Decoding::set_cfg_scale, "Classifier-free guidance; 0 is off");
  const std::map<std::string, v1::Remasking> orders = {
      {"low_confidence", v1::REMASKING_LOW_CONFIDENCE}, {"random", v1::REMASKING_RANDOM}};
  command
      .add_option_function<std::string>(
          "--remasking",
          [&request, orders](const std::string& name) {
            request.mutable_decoding()->set_remasking(orders.at(name));
          },
          "Order in which positions are committed")
      ->check(CLI::IsMember({"low_confidence", "random"}))
      ->group("Decoding");
  command
      .add_option_function<uint64_t>(
          "--seed", [&request](uint64_t seed) { request.mutable_decoding()->set_seed(seed); },
          "Same request and seed, same tokens")
      ->group("Decoding");
  command
      .add_flag_callback(
          "--no-stop-on-end", [&request] { request.mutable_decoding()->set_stop_on_end(false); },
          "Do not stop at the first end token")
      ->group("Decoding");
}

void AddStreaming(CLI::App& command, v1::GenerateRequest& request, bool& stream) {
  const auto group = [](CLI::Option* option) { option->group("Streaming"); };
  group(command.add_flag("--stream,!--no-stream", stream,
                         "Show the canvas while it resolves, or only the result"));
  group(command.add_option_function<uint32_t>(
      "--every", [&request](uint32_t n) { request.mutable_streaming()->set_every_steps(n); },
      "Update every so many steps"));
  group(command.add_flag_callback(
      "--provisional", [&request] { request.mutable_streaming()->set_provisional(true); },
      "Also show predictions for positions still open"));
}

void AddGeneration(CLI::App& command, GenerationSettings& settings) {
  v1::GenerateRequest& request = settings.request;
  command
      .add_option_function<std::string>(
          "--request-id", [&request](const std::string& id) { request.set_request_id(id); },
          "Name of the request, for `sparsectl cancel`")
      ->check(CheckText, "");
  command.add_option("--save", settings.save_file, "Also save the result as JSON to a file");
  AddDecoding(command, request);
  AddAttentionOptions(command, request);
  AddStreaming(command, request, settings.stream);
}

void AddCommands(CLI::App& app, Parsed& parsed) {
  CLI::App* generate = app.add_subcommand("generate", "Continue a text");
  AddText(*generate, "prompt", parsed.generate.prompt);
  AddGeneration(*generate, parsed.generate.generation);

  CLI::App* chat = app.add_subcommand(
      "chat", "Answer a message, or hold a conversation when none is given on a terminal");
  AddText(*chat, "message", parsed.chat.message);
  chat->add_option("--system", parsed.chat.system, "System message to begin with")
      ->check(CheckText, "");
  AddGeneration(*chat, parsed.chat.generation);

  app.add_subcommand("model", "Describe the model, its limits, defaults and presets");
  app.add_subcommand("load", "Tell how busy the server is");
  CLI::App* health = app.add_subcommand("health", "Tell whether the server is serving (exit code)");
  health->add_option("--service", parsed.health.service, "Service to ask for (default: all)")
      ->check(CheckText, "");

  CLI::App* tokenize = app.add_subcommand("tokenize", "Text to token ids, or ids to text");
  AddText(*tokenize, "text", parsed.tokenize.text);
  tokenize->add_option("--ids", parsed.tokenize.ids, "Token ids to turn into text, e.g. 12,7,300")
      ->delimiter(',')
      ->excludes("text")
      ->excludes("--file");
  tokenize->add_flag("--keep-special", parsed.tokenize.keep_special,
                     "With --ids: also write special tokens");

  CLI::App* cancel = app.add_subcommand("cancel", "Stop a queued or running request");
  cancel->add_option("id", parsed.cancel.request_id, "Its request id")
      ->required()
      ->check(CheckText, "");
}

Options Chosen(const CLI::App& app, Parsed&& parsed) {
  const std::string name = app.get_subcommands().front()->get_name();
  Options options{.global = std::move(parsed.global), .command = ModelOptions{}};
  if (name == "generate") options.command = std::move(parsed.generate);
  if (name == "chat") options.command = std::move(parsed.chat);
  if (name == "load") options.command = LoadOptions{};
  if (name == "health") options.command = std::move(parsed.health);
  if (name == "tokenize") options.command = std::move(parsed.tokenize);
  if (name == "cancel") options.command = std::move(parsed.cancel);
  return options;
}

// The innermost command that was named, whose help is the one to point at.
const CLI::App& Innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : *chosen.front();
}

ParseExit UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = Innermost(app);
  std::string reason = error.what();
  std::string path = "sparsectl";
  if (&command != &app) {
    absl::StrAppend(&path, " ", command.get_name());
  } else if (const auto rest = app.remaining(); !rest.empty()) {
    reason = absl::StrCat("unknown command or option '", rest.front(), "'");
  } else if (app.get_subcommands().empty() && error.get_name() == "RequiredError") {
    reason = "a command is missing, such as generate, chat or model";
  }
  return {kExitUsage, "", absl::StrCat("sparsectl: ", reason, "\nTry: ", path, " --help\n")};
}

}  // namespace

std::variant<Options, ParseExit> ParseOptions(int argc, const char* const* argv) {
  CLI::App app{
      "Talks to a sparsed server: text generation with masked diffusion language models.\n"
      "Start one with: sparsed --model models/demo-llada-17m"};
  app.name("sparsectl");
  app.set_version_flag("--version", std::string("sparsectl " SPARSED_VERSION));
  app.footer(absl::StrCat(
      "\n", kExitCodeHelp,
      "\n`sparsectl COMMAND --help` tells the options of a command; those above go", " with any."));
  app.require_subcommand(1);
  app.fallthrough();
  Parsed parsed;
  AddGlobal(app, parsed.global);
  AddCommands(app, parsed);
  try {  // CLI11 reports by exception; none leaves this function
    app.parse(argc, argv);
    return Chosen(app, std::move(parsed));
  } catch (const CLI::CallForHelp&) {
    const CLI::App& command = Innermost(app);
    return ParseExit{kExitOk, command.help(&command == &app ? "" : app.get_name()), ""};
  } catch (const CLI::Success& success) {
    return ParseExit{kExitOk, absl::StrCat(success.what(), "\n"), ""};
  } catch (const CLI::ParseError& error) {
    return UsageError(app, error);
  }
}

}  // namespace sparsed::client
