// SPDX-License-Identifier: Apache-2.0
// GenerationView: how one generation is shown while it runs and when it is done.
//
//   std::unique_ptr<GenerationView> view = MakeGenerationView(options);
//   view->OnEvent(event);  // each event of the stream, or:
//   view->OnResponse(response);
//
// Thread-compatible. Three kinds: a live canvas on a terminal, the final text when piped, JSON
// lines.
#pragma once

#include <memory>

#include "client/options.h"
#include "sparsed/v1/generation.pb.h"

namespace sparsed::client {

class GenerationView {
 public:
  virtual ~GenerationView() = default;
  // The request was sent; nothing is known yet.
  virtual void OnSent() = 0;
  // An event of the stream, in order.
  virtual void OnEvent(const v1::GenerateEvent& event) = 0;
  // The result of a call that was not streamed.
  virtual void OnResponse(const v1::GenerateResponse& response) = 0;
};

// Whether standard output is a terminal on which a canvas can be drawn (and JSON was not asked
// for).
bool IsLive(const GlobalOptions& options);

std::unique_ptr<GenerationView> MakeGenerationView(const GlobalOptions& options);

}  // namespace sparsed::client
