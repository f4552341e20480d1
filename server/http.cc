// SPDX-License-Identifier: Apache-2.0
#include "server/http.h"

#include <atomic>
#include <future>
#include <sys/socket.h>
#include <thread>
#include <utility>

#include <absl/strings/str_cat.h>
#include <httplib.h>

#include "engine/base/invalid_field.h"

namespace sparsed {
namespace {

// A scraper and two probes, and one to spare for a client that hangs.
constexpr size_t kHttpThreads = 4;
constexpr time_t kSocketTimeoutSeconds = 5;
constexpr size_t kMaxBodyBytes = 4096;  // nothing here takes a body

// httplib's default is SO_REUSEPORT, with which two servers could share a port unnoticed.
void SetSocketOptions(socket_t socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
}

}  // namespace

class HttpEndpoint::Impl {
 public:
  explicit Impl(const Metrics* metrics) : metrics_(metrics) {
    server_.set_socket_options(SetSocketOptions);
    server_.set_read_timeout(kSocketTimeoutSeconds);
    server_.set_write_timeout(kSocketTimeoutSeconds);
    server_.set_payload_max_length(kMaxBodyBytes);
    AddRoutes();
  }

  ~Impl() {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen(const HttpOptions& options) {
    if (options.port == 0) {
      port_ = server_.bind_to_any_port(options.address);
    } else if (server_.bind_to_port(options.address, options.port)) {
      port_ = options.port;
    }
    if (port_ <= 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen for HTTP on ", options.address, " port ", options.port,
                       ": the port is taken or the address is not one of this machine"));
    }
    // httplib's stop() is lost unless the server already runs, which its making of a task queue
    // tells.
    auto running = std::make_shared<std::promise<void>>();
    std::future<void> is_running = running->get_future();
    server_.new_task_queue = [running] {
      auto* queue = new httplib::ThreadPool(kHttpThreads);  // httplib takes ownership
      running->set_value();
      return queue;
    };
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    is_running.wait();
    return absl::OkStatus();
  }

  int port() const { return port_; }
  void SetReady(bool ready) { ready_ = ready; }

 private:
  void AddRoutes() {
    server_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(metrics_->Expose(), "text/plain; version=0.0.4; charset=utf-8");
    });
    server_.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("ok\n", "text/plain");
    });
    server_.Get("/readyz", [this](const httplib::Request&, httplib::Response& response) {
      const bool ready = ready_;
      response.status = ready ? 200 : 503;
      response.set_content(ready ? "ready\n" : "not ready\n", "text/plain");
    });
  }

  const Metrics* const metrics_;
  std::atomic<bool> ready_ = false;
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(const HttpOptions& options,
                                                                  const Metrics* metrics) {
  if (options.port < 0 || options.port > 65535) {
    return InvalidField("http.port", options.port, "must be in 0..65535");
  }
  auto impl = std::make_unique<Impl>(metrics);
  absl::Status status = impl->Listen(options);
  if (!status.ok()) return status;
  return std::unique_ptr<HttpEndpoint>(new HttpEndpoint(std::move(impl)));
}

HttpEndpoint::HttpEndpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpEndpoint::~HttpEndpoint() = default;

int HttpEndpoint::port() const { return impl_->port(); }
void HttpEndpoint::SetReady(bool ready) { impl_->SetReady(ready); }

}  // namespace sparsed
