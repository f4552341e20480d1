// SPDX-License-Identifier: Apache-2.0
// WritePortFile: tells scripts which ports were bound: {"grpc":50051,"http":9464}.
// Appears whole or not at all. PERMISSION_DENIED or NOT_FOUND names the path.
#pragma once

#include <string>

#include <absl/status/status.h>

namespace sparsed {

absl::Status WritePortFile(const std::string& path, int grpc_port, int http_port);

}  // namespace sparsed
