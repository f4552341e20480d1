// SPDX-License-Identifier: Apache-2.0
// Words and numbers about a generation: the status line under the canvas and the summary after it.
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "sparsed/v1/generation.pb.h"

namespace sparsed::client {

// "dense", "build", "sparse" or "rebuild".
std::string PhaseName(v1::Phase phase);

// "830 µs", "35.1 ms", "2.4 s", "3 min 20 s".
std::string FormatSeconds(double seconds);

// "step 42/128 · sparse · density 0.372 · mass 0.982 · 35.1 ms"
std::string StatusLine(const v1::Progress& progress);

// Labelled lines: tokens, steps and time by phase, attention and why it ran dense, queue, seed. Each
// ends with '\n'.
std::string Summary(const v1::GenerateResponse& response);

// A line for each layer's part of the newest mask; "" if there is none.
std::string LayerTable(const v1::Sparsity& sparsity);

}  // namespace sparsed::client
