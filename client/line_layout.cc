// SPDX-License-Identifier: Apache-2.0
#include "client/line_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <absl/strings/str_cat.h>

#include "client/utf8.h"

namespace sparsed::client {
namespace {

constexpr int kTabColumns = 4;
constexpr const char* kReplacement = "\uFFFD";

bool IsControl(char32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0);
}

void AppendAsciiControl(char32_t control, CellStyle style, std::vector<Cell>& cells) {
  switch (control) {
    case '\n':
      cells.push_back({"", 0, style, Cell::Break::kNewline});
      return;
    case '\r':
      return;
    case '\t':
      for (int i = 0; i < kTabColumns; ++i) {
        cells.push_back({" ", 1, style, Cell::Break::kMayBreakAfter});
      }
      return;
    default:
      // An escape sequence in generated text must not drive the terminal.
      cells.push_back({kReplacement, 1, style});
  }
}

void AppendWhole(std::string_view text, char32_t code_point, CellStyle style,
                 std::vector<Cell>& cells) {
  const int columns = CodePointColumns(code_point);
  const bool can_combine = !cells.empty() && cells.back().after != Cell::Break::kNewline;
  if (columns == 0 && can_combine) {
    cells.back().text += text;
    return;
  }
  // Between wide characters (Chinese, Japanese) a line may break anywhere.
  const bool may_break = code_point == ' ' || columns == 2;
  cells.push_back({std::string(text), columns, style,
                   may_break ? Cell::Break::kMayBreakAfter : Cell::Break::kNone});
}

// Moves what follows the last legal break of `line` to a new line, or nothing if there is no break.
Line SplitAtBreak(Line& line) {
  for (size_t i = line.size(); i > 0; --i) {
    if (line[i - 1].after != Cell::Break::kMayBreakAfter) continue;
    Line rest(std::make_move_iterator(line.begin() + static_cast<ptrdiff_t>(i)),
              std::make_move_iterator(line.end()));
    line.resize(i);
    return rest;
  }
  return {};
}

size_t FocusRow(const std::vector<Line>& lines) {
  const auto has = [](CellStyle style) {
    return [style](const Line& line) {
      return std::any_of(line.begin(), line.end(),
                         [style](const Cell& cell) { return cell.style == style; });
    };
  };
  const auto fresh = std::find_if(lines.rbegin(), lines.rend(), has(CellStyle::kFresh));
  if (fresh != lines.rend()) return static_cast<size_t>(lines.rend() - fresh) - 1;
  const auto open = std::find_if(lines.begin(), lines.end(), has(CellStyle::kOpen));
  if (open != lines.end()) return static_cast<size_t>(open - lines.begin());
  return lines.size() - 1;
}

Line Note(const std::string& text, int columns) {
  Line line = TextCells(text, CellStyle::kNote);
  line.resize(std::min(line.size(), static_cast<size_t>(columns)));
  return line;
}

}  // namespace

int LineColumns(const Line& line) {
  return std::accumulate(line.begin(), line.end(), 0,
                         [](int sum, const Cell& cell) { return sum + cell.columns; });
}

std::vector<Cell> TextCells(std::string_view bytes, CellStyle style) {
  return TextCells(bytes, [style](size_t) { return style; });
}

std::vector<Cell> TextCells(std::string_view bytes, absl::FunctionRef<CellStyle(size_t)> style_at) {
  std::vector<Cell> cells;
  for (size_t offset = 0; offset < bytes.size();) {
    const Utf8Char c = FirstUtf8Char(bytes.substr(offset));
    const CellStyle style = style_at(offset);
    if (c.kind == Utf8Char::Kind::kInvalid) {
      cells.push_back({kReplacement, 1, style});
    } else if (c.kind == Utf8Char::Kind::kIncomplete) {
      cells.push_back({kIncompleteGlyph, 1, style});
    } else if (IsControl(c.code_point)) {
      AppendAsciiControl(c.code_point, style, cells);
    } else {
      AppendWhole(bytes.substr(offset, c.size), c.code_point, style, cells);
    }
    offset += c.size;
  }
  return cells;
}

std::vector<Line> WrapCells(std::vector<Cell> cells, int columns) {
  std::vector<Line> lines(1);
  int used = 0;
  for (Cell& cell : cells) {
    if (cell.after == Cell::Break::kNewline) {
      lines.emplace_back();
      used = 0;
      continue;
    }
    if (cell.columns > columns) {
      cell.text.assign(1, '?');  // an assigned literal trips GCC 12's -Wrestrict (PR 105329)
      cell.columns = 1;
    }
    if (used + cell.columns > columns) {
      // A space at the break stays, invisible, at the end of its line only if it fits there.
      if (cell.text == " ") {
        lines.emplace_back();
        used = 0;
        continue;
      }
      Line rest = SplitAtBreak(lines.back());
      used = LineColumns(rest);
      lines.push_back(std::move(rest));
    }
    used += cell.columns;
    lines.back().push_back(std::move(cell));
  }
  return lines;
}

std::vector<Line> CutToWindow(std::vector<Line> lines, int rows, int columns) {
  const size_t window = static_cast<size_t>(std::max(rows, 1));
  if (lines.size() <= window) return lines;
  // The focus sits in the lower part of the window: text is read from above it.
  const size_t focus = FocusRow(lines);
  const size_t lead = window * 2 / 3;
  const size_t first = std::min(focus > lead ? focus - lead : 0, lines.size() - window);
  const size_t below = lines.size() - first - window;
  std::vector<Line> cut(
      std::make_move_iterator(lines.begin() + static_cast<ptrdiff_t>(first)),
      std::make_move_iterator(lines.begin() + static_cast<ptrdiff_t>(first + window)));
  constexpr size_t kRoomForNotes = 4;
  if (window < kRoomForNotes) return cut;
  // A note also hides the line it stands on, hence the + 1.
  if (first > 0) cut.front() = Note(absl::StrCat("… ", first + 1, " lines above"), columns);
  if (below > 0) cut.back() = Note(absl::StrCat("… ", below + 1, " lines below"), columns);
  return cut;
}

}  // namespace sparsed::client
