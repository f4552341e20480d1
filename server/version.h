// SPDX-License-Identifier: Apache-2.0
// The version that --version, GetModel and the build_info metric report.
#pragma once

namespace sparsed {

inline constexpr char kServerVersion[] = SPARSED_VERSION;  // from CMake's project()

}  // namespace sparsed
