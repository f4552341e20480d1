// SPDX-License-Identifier: Apache-2.0
#include "client/canvas_view.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "client/utf8.h"

namespace sparsed::client {
namespace {

constexpr const char* kOpenGlyph = "\u2591";  // light shade
constexpr const char* kEndGlyph = "\u00B7";   // middle dot

}  // namespace

CanvasView::CanvasView(uint32_t first_position, uint32_t length)
    : first_position_(first_position), positions_(length) {}

void CanvasView::Apply(const google::protobuf::RepeatedPtrField<v1::Edit>& edits) {
  for (Position& position : positions_) {
    if (position.style == CellStyle::kFresh) position.style = CellStyle::kCommitted;
  }
  for (const v1::Edit& edit : edits) ApplyOne(edit);
}

void CanvasView::ApplyOne(const v1::Edit& edit) {
  if (edit.position() < first_position_) return;
  const size_t index = edit.position() - first_position_;
  if (index >= positions_.size()) return;
  Position& position = positions_[index];
  if (position.style == CellStyle::kCommitted || position.style == CellStyle::kFresh) return;
  position.piece = edit.piece();
  position.style = edit.committed() ? CellStyle::kFresh : CellStyle::kProvisional;
  if (edit.committed()) ++committed_;
}

std::vector<Cell> CanvasView::Cells() const {
  std::vector<Cell> cells;
  const auto has_text = [](const Position& position) { return !position.piece.empty(); };
  for (size_t i = 0; i < positions_.size();) {
    if (positions_[i].style == CellStyle::kOpen) {
      cells.push_back({kOpenGlyph, 1, CellStyle::kOpen, Cell::Break::kMayBreakAfter});
      ++i;
    } else if (!has_text(positions_[i])) {
      cells.push_back({kEndGlyph, 1, CellStyle::kEnd, Cell::Break::kMayBreakAfter});
      ++i;
    } else {
      const auto begin = positions_.begin() + static_cast<ptrdiff_t>(i);
      const size_t end =
          i + static_cast<size_t>(std::find_if_not(begin, positions_.end(), has_text) - begin);
      AppendRun(i, end, cells);
      i = end;
    }
  }
  return cells;
}

void CanvasView::AppendRun(size_t begin, size_t end, std::vector<Cell>& cells) const {
  std::string bytes;
  std::vector<CellStyle> styles;
  for (size_t i = begin; i < end; ++i) {
    bytes += positions_[i].piece;
    styles.resize(bytes.size(), positions_[i].style);
  }
  // A character that begins in an open position before the run is not known yet, rather than wrong.
  size_t known = 0;
  if (begin > 0 && positions_[begin - 1].style == CellStyle::kOpen) {
    while (known < bytes.size() && IsUtf8Continuation(bytes[known])) ++known;
  }
  if (known > 0) cells.push_back({kIncompleteGlyph, 1, styles[0]});
  std::vector<Cell> run = TextCells(std::string_view(bytes).substr(known),
                                    [&](size_t offset) { return styles[known + offset]; });
  std::move(run.begin(), run.end(), std::back_inserter(cells));
}

}  // namespace sparsed::client
