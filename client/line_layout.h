// SPDX-License-Identifier: Apache-2.0
// Styled terminal cells, wrapped into lines and cut to a window.
//
//   std::vector<Line> lines = WrapCells(TextCells(answer, CellStyle::kCommitted), 80);
//   lines = CutToWindow(std::move(lines), 20);
//
// Pure functions; any thread. Nothing here writes escape codes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <absl/functional/function_ref.h>

namespace sparsed::client {

enum class CellStyle {
  kCommitted,    // final text
  kFresh,        // committed by the last event
  kProvisional,  // predicted, still open
  kOpen,         // masked, nothing predicted
  kEnd,          // a token without text, such as the end of the answer
  kNote          // ours, not the model's
};

// One character with what combines with it.
struct Cell {
  std::string text;  // valid UTF-8 without control characters
  int columns = 1;   // 0..2
  CellStyle style = CellStyle::kCommitted;
  enum class Break { kNone, kMayBreakAfter, kNewline } after = Break::kNone;

  bool operator==(const Cell&) const = default;
};

using Line = std::vector<Cell>;

// Stands for bytes of a character whose other bytes are not known yet.
inline constexpr const char* kIncompleteGlyph = "\u2592";  // medium shade: between open and text

// Columns that a line takes on the terminal.
int LineColumns(const Line& line);

// The cells of a text: control characters cannot reach the terminal (a tab becomes spaces, others
// a visible substitute), invalid bytes become U+FFFD, and bytes that end inside a character become
// kIncompleteGlyph, since a neighbour that is still open may complete it.
std::vector<Cell> TextCells(std::string_view bytes, CellStyle style);

// The same, with the style of the byte where each character begins.
std::vector<Cell> TextCells(std::string_view bytes, absl::FunctionRef<CellStyle(size_t)> style_at);

// Breaks at newlines, and else after the last space (or open position) that fits, or anywhere in a
// word longer than a line. No line is wider than `columns` (at least 1); a wide character that can
// never fit becomes `?`. Always returns at least one line.
std::vector<Line> WrapCells(std::vector<Cell> cells, int columns);

// At most `rows` (at least 1) lines around the last freshly committed cell, or else the first open
// one, or else the end. What is cut off above and below is told in a kNote line if there is room.
std::vector<Line> CutToWindow(std::vector<Line> lines, int rows, int columns);

}  // namespace sparsed::client
