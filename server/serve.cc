// SPDX-License-Identifier: Apache-2.0
#include "server/serve.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_join.h>
#include <absl/types/span.h>

#include "engine/base/status_macros.h"
#include "engine/model/model_config.h"
#include "server/admission.h"
#include "server/http.h"
#include "server/load_progress.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/port_file.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/served_model.h"
#include "server/step_loop.h"
#include "server/version.h"

namespace sparsed {
namespace {

HttpOptions HttpOptionsFor(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  std::string host = listen.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return {.address = std::move(host), .port = std::stoi(listen.substr(colon + 1))};
}

absl::StatusOr<std::unique_ptr<Engine>> LoadWithProgress(const ServerConfig& config,
                                                         const EngineLoader& load_engine,
                                                         const StopRequest& stop) {
  LoadProgress progress(ModelName(config.model_dir));
  EngineOptions options;
  options.model_dir = config.model_dir;
  options.mask_budget_bytes = config.mask_budget_mib << 20;
  options.max_rows = config.max_rows;
  options.threads = config.threads;
  options.guard = config.attention_guard;
  options.on_progress = [&](double share) {
    progress.Show(share);
    return !stop.requested();
  };
  return load_engine(options);
}

struct Loaded {
  std::unique_ptr<Engine> engine;
  ServedModel model;
};

absl::StatusOr<Loaded> Load(const ServerConfig& config, const EngineLoader& load_engine,
                            const StopRequest& stop) {
  Loaded loaded;
  ASSIGN_OR_RETURN(loaded.engine, LoadWithProgress(config, load_engine, stop));
  ASSIGN_OR_RETURN(loaded.model, LoadServedModel(config.model_dir, loaded.engine->model(),
                                                 config.default_preset));
  return loaded;
}

void WarnOfIgnored(const std::vector<std::string>& tensors) {
  if (tensors.empty()) return;
  constexpr size_t kNamed = 3;
  const auto first = absl::MakeSpan(tensors).subspan(0, kNamed);
  Log(LogLevel::kWarning, "ignored_tensors",
      {{"count", tensors.size()}, {"first", absl::StrJoin(first, ", ")}});
}

// In the log and in the metrics.
void Describe(const ServedModel& model, double seconds, Metrics* metrics) {
  const ModelInfo& info = model.info;
  Log(LogLevel::kInfo, "loaded",
      {{"model", info.name},
       {"family", info.family},
       {"parameters", info.parameters},
       {"weight_bytes", info.weight_bytes},
       {"dtype", info.dtype},
       {"device", info.device},
       {"max_length", info.max_length},
       {"chat_template", model.chat_template ? "yes" : "no"},
       {"seconds", seconds}});
  WarnOfIgnored(info.ignored_tensors);
  metrics->build_info.Set({{"version", ServerVersion()},
                           {"model", info.name},
                           {"dtype", info.dtype},
                           {"device", info.device}});
}

// Queue and step loop over a loaded engine, open to both endpoints until asked to stop.
class Session {
 public:
  Session(const ServerConfig& config, Engine* engine, Metrics* metrics, const Clock* clock)
      : config_(config),
        admission_({.max_queued = config.max_queue}, clock, metrics),
        loop_({.max_batch_tokens = config.max_batch_tokens,
               .write_stall_limit = std::chrono::seconds(config.stall_seconds)},
              engine, &admission_, metrics, clock) {}

  Admission* admission() { return &admission_; }
  void Start() { loop_.Start(); }

  // True if nothing had to be cut short.
  bool Drain(StopRequest* stop) {
    stop->SetOnUrgent([this] { loop_.Stop(); });
    const bool whole = loop_.Drain(std::chrono::seconds(config_.drain_seconds));
    stop->SetOnUrgent(nullptr);
    return whole;
  }

 private:
  const ServerConfig& config_;
  Admission admission_;
  StepLoop loop_;
};

}  // namespace

absl::Status Serve(const ServerConfig& config, const EngineLoader& load_engine, StopRequest* stop) {
  SteadyClock clock;
  Metrics metrics;
  ASSIGN_OR_RETURN(const auto http,
                   HttpEndpoint::Start(HttpOptionsFor(config.http_listen), &metrics));
  Loaded loaded;
  std::unique_ptr<Session> session;
  // Declared after what its calls use, so that it ends before.
  ASSIGN_OR_RETURN(const auto grpc, GrpcServer::Start({.listen = config.listen,
                                                       .max_message_mib = config.max_message_mib}));
  Log(LogLevel::kInfo, "listening",
      {{"version", ServerVersion()}, {"grpc_port", grpc->port()}, {"http_port", http->port()}});

  const TimePoint load_start = clock.Now();
  absl::StatusOr<Loaded> load = Load(config, load_engine, *stop);
  if (stop->requested()) {
    Log(LogLevel::kInfo, "stopped", {{"while", "loading"}});
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(loaded, std::move(load));
  Describe(loaded.model, Seconds(clock.Now() - load_start), &metrics);

  session = std::make_unique<Session>(config, loaded.engine.get(), &metrics, &clock);
  session->Start();
  grpc->StartServing({.engine = loaded.engine.get(),
                      .model = &loaded.model,
                      .admission = session->admission(),
                      .metrics = &metrics,
                      .clock = &clock});
  http->SetReady(true);
  if (!config.port_file.empty()) {
    RETURN_IF_ERROR(WritePortFile(config.port_file, grpc->port(), http->port()));
  }
  Log(LogLevel::kInfo, "serving", {{"model", loaded.model.info.name}});

  stop->Wait();
  grpc->StopServing();
  http->SetReady(false);
  Log(LogLevel::kInfo, "draining", {{"limit_seconds", config.drain_seconds}});
  const bool whole = session->Drain(stop);
  grpc->Shutdown();
  Log(LogLevel::kInfo, "stopped", {{"cut_short", whole ? "no" : "yes"}});
  return absl::OkStatus();
}

}  // namespace sparsed
