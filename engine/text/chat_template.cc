// SPDX-License-Identifier: Apache-2.0
#include "engine/text/chat_template.h"

#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/base/concat.h"
#include "engine/base/status_macros.h"
#include "engine/model/input_file.h"
#include "engine/model/json_file.h"
#include "engine/text/control_marks.h"
#include "engine/text/hf_call.h"

namespace sparsed {
namespace {

using Json = nlohmann::json;
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

constexpr size_t kMaxFileBytes = size_t{64} << 20;
constexpr const char* kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};

// A special token is written as its text, or as an object with the text and flags.
NamedTexts ReadSpecialTokens(const Json& config) {
  NamedTexts special_tokens;
  for (const char* name : kSpecialNames) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    const Json& text = found->is_object() ? found->value("content", Json()) : *found;
    if (text.is_string()) special_tokens.emplace_back(name, text.get<std::string>());
  }
  return special_tokens;
}

// chat_template is the template, or a list of named ones of which "default" is meant.
const Json* FindTemplate(const Json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return nullptr;
  if (found->is_string()) return &*found;
  if (!found->is_array()) return nullptr;
  for (const Json& entry : *found) {
    if (!entry.is_object() || entry.value("name", Json()) != "default") continue;
    const auto source = entry.find("template");
    if (source != entry.end() && source->is_string()) return &*source;
  }
  return nullptr;
}

absl::StatusOr<std::string> ReadTemplateFile(const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  return file.Read(kMaxFileBytes);
}

absl::StatusOr<HfTemplate*> OpenTemplate(std::string_view subject, std::string_view source,
                                         const NamedTexts& special_tokens) {
  std::vector<HfNamedText> globals;
  globals.reserve(special_tokens.size());
  for (const auto& [name, text] : special_tokens) globals.push_back({HfView(name), HfView(text)});
  HfTemplate* handle = nullptr;
  RETURN_IF_ERROR(
      HfCall(subject, hf_template_new(HfView(source), globals.data(), globals.size(), &handle)));
  return handle;
}

absl::Status CheckUtf8(absl::Span<const ChatMessage> messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    for (const auto& [name, text] :
         {std::pair<std::string_view, std::string_view>("role", messages[i].role),
          {"content", messages[i].content}}) {
      if (const std::optional<size_t> at = FindInvalidUtf8(text)) {
        return absl::InvalidArgumentError(
            Concat("messages[", i, "].", name, " is not UTF-8 at byte ", *at));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const Json config, ReadJsonObject(path, {.bytes = kMaxFileBytes}));
  const NamedTexts special_tokens = ReadSpecialTokens(config);
  std::string origin = path;
  std::string source;
  if (const Json* found = FindTemplate(config)) {
    source = found->get<std::string>();
  } else {
    origin = (std::filesystem::path(path).parent_path() / "chat_template.jinja").string();
    absl::StatusOr<std::string> text = ReadTemplateFile(origin);
    if (absl::IsNotFound(text.status())) {
      return absl::NotFoundError(Concat(path, ": has no chat_template, and there is no ", origin));
    }
    ASSIGN_OR_RETURN(source, std::move(text));
  }
  ASSIGN_OR_RETURN(HfTemplate* const handle, OpenTemplate(origin, source, special_tokens));
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(handle));
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::FromSource(
    std::string_view source,
    const std::vector<std::pair<std::string, std::string>>& special_tokens) {
  ASSIGN_OR_RETURN(HfTemplate* const handle, OpenTemplate("chat template", source, special_tokens));
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(handle));
}

ChatTemplate::ChatTemplate(HfTemplate* handle) : handle_(handle) {}

ChatTemplate::~ChatTemplate() { hf_template_free(handle_); }

absl::StatusOr<std::string> ChatTemplate::Render(absl::Span<const ChatMessage> messages,
                                                 bool add_generation_prompt) const {
  RETURN_IF_ERROR(CheckUtf8(messages));
  std::vector<HfMessage> views;
  views.reserve(messages.size());
  for (const ChatMessage& message : messages) {
    views.push_back({HfView(message.role), HfView(message.content)});
  }
  HfOwnedBytes text;
  RETURN_IF_ERROR(HfCall("chat template", hf_template_render(handle_, views.data(), views.size(),
                                                             add_generation_prompt, text.out())));
  return std::string(HfString(text));
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::Encode(absl::Span<const ChatMessage> messages,
                                                          bool add_generation_prompt,
                                                          const Tokenizer& tokenizer) const {
  RETURN_IF_ERROR(CheckUtf8(messages));
  const ControlMarks marks(messages, tokenizer.special_tokens());
  ASSIGN_OR_RETURN(const std::string rendered, Render(marks.messages(), add_generation_prompt));
  const ControlMarks::Removed removed = marks.Remove(rendered);
  return tokenizer.EncodeRendered(removed.text, removed.plain);
}

}  // namespace sparsed
