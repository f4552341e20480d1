// SPDX-License-Identifier: Apache-2.0
// CanvasView: the generation part of a canvas, as far as the events seen tell.
//
//   CanvasView view(started.prompt_tokens(), started.resolved().decoding().gen_length());
//   view.Apply(progress.edits());
//   std::vector<Line> lines = WrapCells(view.Cells(), terminal_columns);
//
// Thread-compatible. Edits outside the canvas and predictions for committed positions are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <google/protobuf/repeated_ptr_field.h>

#include "client/line_layout.h"
#include "sparsed/v1/generation.pb.h"

namespace sparsed::client {

class CanvasView {
 public:
  // first_position: canvas position of the first generated token.
  CanvasView(uint32_t first_position, uint32_t length);

  // Takes one event's edits; positions they commit are fresh until the next call. The order of the
  // edits does not matter: a committed token wins over a prediction.
  void Apply(const google::protobuf::RepeatedPtrField<v1::Edit>& edits);

  // The canvas from left to right. Pieces of neighbouring positions are joined before they are
  // read as UTF-8; a character has the style of the position where it begins.
  std::vector<Cell> Cells() const;

  uint32_t committed() const { return committed_; }

 private:
  struct Position {
    CellStyle style = CellStyle::kOpen;  // kOpen, kProvisional, kFresh or kCommitted
    std::string piece;
  };
  void ApplyOne(const v1::Edit& edit);
  // Appends the text of positions [begin, end), none of which is open.
  void AppendRun(size_t begin, size_t end, std::vector<Cell>& cells) const;

  const uint32_t first_position_;
  std::vector<Position> positions_;
  uint32_t committed_ = 0;
};

}  // namespace sparsed::client
