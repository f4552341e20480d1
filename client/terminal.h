// SPDX-License-Identifier: Apache-2.0
// LiveRegion: the lines at the bottom of the terminal that are redrawn in place.
//
//   LiveRegion region(STDOUT_FILENO, /*color=*/true);
//   region.Draw(lines, "step 3/128");    // again and again
//   region.Finish(final_lines);          // stays on the screen
//
// Thread-compatible. Owns the cursor between the first Draw and Finish (or its end): nothing else
// may write to the terminal then. Escape codes are written here and nowhere else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/line_layout.h"

namespace sparsed::client {

struct TerminalSize {
  int columns;
  int rows;
};

// True for a terminal that understands cursor movement.
bool IsTerminal(int fd);

// 80 x 24 where the terminal does not tell.
TerminalSize SizeOfTerminal(int fd);

// The line with colours as escape codes, or without any.
std::string Paint(const Line& line, bool color);

// All of `text`, however slow the reader; false if the reader is gone.
bool WriteAll(int fd, std::string_view text);

class LiveRegion {
 public:
  LiveRegion(int fd, bool color);
  ~LiveRegion();  // shows the cursor again; what was drawn stays
  LiveRegion(const LiveRegion&) = delete;
  LiveRegion& operator=(const LiveRegion&) = delete;

  // Replaces what was drawn before. Together the lines must fit into the window.
  void Draw(const std::vector<Line>& lines, const Line& status);

  // Replaces what was drawn before for good and leaves the cursor on a fresh line.
  void Finish(const std::vector<Line>& lines);

 private:
  std::string EraseDrawn();

  const int fd_;
  const bool color_;
  std::vector<int> drawn_columns_;  // of each line on the screen
};

}  // namespace sparsed::client
