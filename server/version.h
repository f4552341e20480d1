// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sparsed {

// The version that --version, GetModel and the build_info metric report: CMake's project version.
const char* ServerVersion();

}  // namespace sparsed
