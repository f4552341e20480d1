// SPDX-License-Identifier: Apache-2.0
// HttpEndpoint: /metrics for Prometheus, /healthz and /readyz for probes. Nothing else: 404.
//
//   ASSIGN_OR_RETURN(auto http, HttpEndpoint::Start({.address = "127.0.0.1", .port = 0},
//   &metrics)); http->SetReady(true);   // /readyz answers 200 from now on, 503 before Log("metrics
//   on port ", http->port());
//
// Serves from its own threads until destroyed. SetReady and port may be called from any thread.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "server/metrics.h"

namespace sparsed {

struct HttpOptions {
  std::string address = "127.0.0.1";
  int port = 0;  // 0 = a free one
};

class HttpEndpoint {
 public:
  // `metrics` must outlive the endpoint. UNAVAILABLE names address and port.
  static absl::StatusOr<std::unique_ptr<HttpEndpoint>> Start(const HttpOptions& options,
                                                             const Metrics* metrics);
  ~HttpEndpoint();

  int port() const;  // the one really bound
  void SetReady(bool ready);

 private:
  class Impl;  // keeps httplib.h out of this header
  explicit HttpEndpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sparsed
