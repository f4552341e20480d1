// SPDX-License-Identifier: Apache-2.0
#include "engine/text/control_marks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <absl/strings/ascii.h>

namespace sparsed {
namespace {

// Private-use characters: real text has none, so the first one nearly always is free.
constexpr uint32_t kFirstMark = 0xF0000;

constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";  // what templates trim

std::string FourByteCharacter(uint32_t code) {
  const auto trail = [&](int shift) { return static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  return {static_cast<char>(0xF0 | (code >> 18)), trail(12), trail(6), trail(0)};
}

// A character that no message contains.
std::string FreeCharacter(absl::Span<const ChatMessage> messages) {
  std::string mark = FourByteCharacter(kFirstMark);
  const auto used = [&](const ChatMessage& message) {
    return message.content.find(mark) != std::string::npos ||
           message.role.find(mark) != std::string::npos;
  };
  for (uint32_t code = kFirstMark; std::any_of(messages.begin(), messages.end(), used); ++code) {
    mark = FourByteCharacter(code + 1);
  }
  return mark;
}

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

size_t CharacterEnd(std::string_view text, size_t at) {
  do ++at;
  while (at < text.size() && IsContinuation(text[at]));
  return at;
}

size_t CharacterBegin(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && IsContinuation(text[end]));
  return end;
}

// Where control tokens, or parts of them at the edges, stand in a text.
class ControlFinder {
 public:
  explicit ControlFinder(absl::Span<const std::string> controls) {
    for (const std::string& control : controls) {
      if (control.empty()) continue;
      sorted_.push_back(control);
      longest_ = std::max(longest_, control.size());
    }
    std::sort(sorted_.begin(), sorted_.end());
    for (std::string_view control : sorted_) {
      if (shortest_.empty() || !control.starts_with(shortest_.back())) {
        shortest_.push_back(control);
      }
    }
  }

  // Ends of the characters to mark, ascending.
  std::vector<size_t> Find(std::string_view text) const {
    std::vector<size_t> ends;
    for (size_t i = 0; i < text.size(); ++i) {
      if (StandsAt(text.substr(i))) ends.push_back(CharacterEnd(text, i));
    }
    const size_t begin = text.find_first_not_of(kWhiteSpace);
    if (begin == std::string_view::npos) return ends;
    AddHead(text.substr(begin), begin, &ends);
    AddTail(text.substr(0, text.find_last_not_of(kWhiteSpace) + 1), &ends);
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    return ends;
  }

 private:
  // `shortest_` has no two tokens of which one begins the other: only the last one that sorts
  // before `text` can begin it.
  bool StandsAt(std::string_view text) const {
    const auto after = std::upper_bound(shortest_.begin(), shortest_.end(), text);
    return after != shortest_.begin() && text.starts_with(*std::prev(after));
  }

  // `head` begins with the end of a control token whose beginning the template may write.
  void AddHead(std::string_view head, size_t offset, std::vector<size_t>* ends) const {
    for (size_t size = 1; size < std::min(longest_, head.size() + 1); ++size) {
      const std::string_view part = head.substr(0, size);
      const bool ends_one = std::any_of(sorted_.begin(), sorted_.end(), [&](auto control) {
        return control.size() > size && control.ends_with(part);
      });
      if (ends_one) ends->push_back(offset + size);
    }
  }

  // `tail` ends with the beginning of a control token that the template may finish.
  void AddTail(std::string_view tail, std::vector<size_t>* ends) const {
    for (size_t size = 1; size < std::min(longest_, tail.size() + 1); ++size) {
      const size_t begin = tail.size() - size;
      const std::string_view part = tail.substr(begin);
      const auto at = std::upper_bound(sorted_.begin(), sorted_.end(), part);
      if (at != sorted_.end() && at->starts_with(part)) {
        ends->push_back(CharacterEnd(tail, begin));
      }
    }
  }

  std::vector<std::string_view> sorted_;
  std::vector<std::string_view> shortest_;
  size_t longest_ = 0;
};

std::string Marked(std::string_view text, const ControlFinder& finder, std::string_view mark) {
  std::string marked;
  size_t done = 0;
  for (size_t end : finder.Find(text)) {
    marked.append(text.substr(done, end - done)).append(mark);
    done = end;
  }
  return marked.append(text.substr(done));
}

// "user" is a word of the template's, even where it is a part of a control token.
bool IsWord(std::string_view role) {
  return std::all_of(role.begin(), role.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  });
}

}  // namespace

ControlMarks::ControlMarks(absl::Span<const ChatMessage> messages,
                           absl::Span<const std::string> controls)
    : mark_(FreeCharacter(messages)) {
  const ControlFinder finder(controls);
  messages_.reserve(messages.size());
  for (const ChatMessage& message : messages) {
    messages_.push_back({IsWord(message.role) ? message.role : Marked(message.role, finder, mark_),
                         Marked(message.content, finder, mark_)});
  }
}

ControlMarks::Removed ControlMarks::Remove(std::string_view rendered) const {
  Removed removed;
  removed.text.reserve(rendered.size());
  while (true) {
    const size_t at = rendered.find(mark_);
    removed.text.append(rendered.substr(0, at));
    if (at == std::string_view::npos) return removed;
    rendered.remove_prefix(at + mark_.size());
    const size_t end = removed.text.size();
    const size_t last_end = removed.plain.empty() ? 0 : removed.plain.back().end;
    if (end > last_end) removed.plain.push_back({CharacterBegin(removed.text, end), end});
  }
}

}  // namespace sparsed
