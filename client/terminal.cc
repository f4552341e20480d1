// SPDX-License-Identifier: Apache-2.0
#include "client/terminal.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/ioctl.h>
#include <unistd.h>

#include <absl/strings/str_cat.h>

namespace sparsed::client {
namespace {

constexpr const char* kHideCursor = "\033[?25l";
constexpr const char* kShowCursor = "\033[?25h";
constexpr const char* kEraseBelow = "\r\033[J";
constexpr const char* kPlain = "\033[0m";

std::string_view ColorOf(CellStyle style) {
  switch (style) {
    case CellStyle::kCommitted:
      return "";
    case CellStyle::kFresh:
      return "\033[1;32m";
    case CellStyle::kProvisional:
      return "\033[2;3m";
    case CellStyle::kOpen:
    case CellStyle::kEnd:
    case CellStyle::kNote:
      return "\033[2m";
  }
  return "";
}

}  // namespace

bool IsTerminal(int fd) {
  const char* term = std::getenv("TERM");
  return isatty(fd) != 0 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

TerminalSize SizeOfTerminal(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
  return {size.ws_col, size.ws_row};
}

std::string Paint(const Line& line, bool color) {
  std::string painted;
  std::string_view current;
  for (const Cell& cell : line) {
    const std::string_view wanted = color ? ColorOf(cell.style) : "";
    if (wanted != current) {
      if (!current.empty()) painted += kPlain;
      painted += wanted;
      current = wanted;
    }
    painted += cell.text;
  }
  if (!current.empty()) painted += kPlain;
  return painted;
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

LiveRegion::LiveRegion(int fd, bool color) : fd_(fd), color_(color) {}

LiveRegion::~LiveRegion() {
  if (!drawn_columns_.empty()) WriteAll(fd_, absl::StrCat("\n", kShowCursor));
}

void LiveRegion::Draw(const std::vector<Line>& lines, const Line& status) {
  std::string frame = absl::StrCat(kHideCursor, EraseDrawn());
  for (const Line& line : lines) {
    absl::StrAppend(&frame, Paint(line, color_), "\n");
    drawn_columns_.push_back(LineColumns(line));
  }
  absl::StrAppend(&frame, Paint(status, color_));
  drawn_columns_.push_back(LineColumns(status));
  // One write, so that no half-drawn frame is seen.
  WriteAll(fd_, frame);
}

void LiveRegion::Finish(const std::vector<Line>& lines) {
  std::string frame = EraseDrawn();
  for (const Line& line : lines) absl::StrAppend(&frame, Paint(line, color_), "\n");
  WriteAll(fd_, absl::StrCat(frame, kShowCursor));
}

std::string LiveRegion::EraseDrawn() {
  // After the window became narrower, old lines take more rows than were drawn.
  const int columns = SizeOfTerminal(fd_).columns;
  int rows = 0;
  for (const int drawn : drawn_columns_) rows += std::max(1, (drawn + columns - 1) / columns);
  drawn_columns_.clear();
  if (rows <= 1) return std::string(kEraseBelow);
  return absl::StrCat("\033[", rows - 1, "A", kEraseBelow);
}

}  // namespace sparsed::client
