// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <string>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/generation_run.h"
#include "client/generation_view.h"
#include "client/utf8.h"

namespace sparsed::client {
namespace {

void AddMessage(v1::Chat& chat, const char* role, const std::string& content) {
  v1::ChatMessage& message = *chat.add_messages();
  message.set_role(role);
  message.set_content(content);
}

void StartConversation(v1::Chat& chat, const std::string& system) {
  chat.Clear();
  if (!system.empty()) AddMessage(chat, "system", system);
}

// Reads the next line a person typed; false at the end of input.
bool ReadLine(const GlobalOptions& options, std::string& line) {
  std::cout << (options.color ? "\033[1myou>\033[0m " : "you> ") << std::flush;
  if (std::getline(std::cin, line)) return true;
  std::cout << "\n";
  return false;
}

// Turn after turn, until /quit or Ctrl-D. Ctrl-C during an answer drops that answer only.
int Converse(Session& session, const ChatOptions& options) {
  std::cout << "Ctrl-C stops an answer, /reset forgets the turns, /quit or Ctrl-D ends.\n";
  GenerationSettings generation = options.generation;
  v1::Chat& chat = *generation.request.mutable_chat();
  StartConversation(chat, options.system);
  std::string line;
  while (ReadLine(session.options, line)) {
    if (line == "/quit") return kExitOk;
    if (line.empty()) continue;
    if (line == "/reset") {
      StartConversation(chat, options.system);
      continue;
    }
    if (const absl::Status status = CheckUtf8(line, "the message"); !status.ok()) {
      ReportBadInput(status);
      continue;
    }
    AddMessage(chat, "user", line);
    const GenerationOutcome outcome = RunGeneration(session, generation);
    if (outcome.exit_code == kExitNoServer) return outcome.exit_code;
    if (outcome.exit_code == kExitOk) {
      AddMessage(chat, "assistant", outcome.text);
    } else {
      // A turn without an answer is as if it had not been said.
      chat.mutable_messages()->RemoveLast();
    }
  }
  return kExitOk;
}

}  // namespace

int Run(Session& session, const ChatOptions& options) {
  const bool given = options.message.text.has_value() || !options.message.file.empty();
  if (!given && isatty(STDIN_FILENO) != 0 && IsLive(session.options)) {
    return Converse(session, options);
  }
  const absl::StatusOr<std::string> message = ReadText(options.message, "message");
  if (!message.ok()) return ReportBadInput(message.status());
  GenerationSettings generation = options.generation;
  v1::Chat& chat = *generation.request.mutable_chat();
  StartConversation(chat, options.system);
  AddMessage(chat, "user", *message);
  return RunGeneration(session, generation).exit_code;
}

}  // namespace sparsed::client
