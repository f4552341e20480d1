// SPDX-License-Identifier: Apache-2.0
#include "server/port_file.h"

#include <cerrno>
#include <cstdio>
#include <fstream>

#include <absl/strings/str_cat.h>

namespace sparsed {

absl::Status WritePortFile(const std::string& path, int grpc_port, int http_port) {
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::trunc);
  file << absl::StrCat("{\"grpc\":", grpc_port, ",\"http\":", http_port, "}\n");
  file.close();
  if (!file.good() || std::rename(part.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path, " (--port-file)"));
  }
  return absl::OkStatus();
}

}  // namespace sparsed
