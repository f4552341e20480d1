// SPDX-License-Identifier: Apache-2.0
#include "tests/client/fake_generation_service.h"

#include <chrono>

#include <grpcpp/health_check_service_interface.h>

namespace sparsed::testing {
namespace {

constexpr uint32_t kPromptTokens = 5;

v1::GenerateEvent ProgressEvent(uint32_t step) {
  v1::GenerateEvent event;
  event.set_sequence(step);
  v1::Progress& progress = *event.mutable_progress();
  progress.set_step(step);
  progress.set_steps(2);
  progress.set_phase(step == 1 ? v1::PHASE_DENSE : v1::PHASE_SPARSE);
  progress.set_density(step == 1 ? 1 : 0.25);
  progress.set_step_seconds(0.02);
  return event;
}

void Commit(v1::GenerateEvent& event, uint32_t offset, const std::string& piece) {
  v1::Edit& edit = *event.mutable_progress()->add_edits();
  edit.set_position(kPromptTokens + offset);
  edit.set_piece(piece);
  edit.set_committed(true);
}

}  // namespace

std::vector<v1::GenerateEvent> TwoStepEvents() {
  v1::GenerateEvent started;
  started.mutable_started()->set_prompt_tokens(kPromptTokens);
  started.mutable_started()->set_steps(2);
  started.mutable_started()->mutable_resolved()->mutable_decoding()->set_gen_length(4);
  v1::GenerateEvent first = ProgressEvent(1);
  Commit(first, 0, "Hi");
  Commit(first, 3, "\x9D\xB1");
  v1::GenerateEvent second = ProgressEvent(2);
  Commit(second, 1, " ");
  Commit(second, 2, "\xE6");
  v1::GenerateEvent finished;
  finished.set_sequence(3);
  finished.mutable_finished()->set_text("Hi 東");
  finished.mutable_finished()->mutable_usage()->set_steps(2);
  finished.mutable_finished()->mutable_usage()->set_generated_tokens(4);
  finished.mutable_finished()->mutable_sparsity()->add_layers()->set_density(0.25);
  return {started, first, second, finished};
}

// Sends the script's events one after the other.
class FakeServer::Stream final : public grpc::ServerWriteReactor<v1::GenerateEvent> {
 public:
  explicit Stream(FakeServer& server) : server_(server) { SendNext(); }

  void OnWriteDone(bool ok) override {
    if (ok) {
      SendNext();
    } else if (!server_.script_.hang) {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnCancel() override {
    server_.Set(server_.cancelled_);
    if (server_.script_.hang) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    server_.Set(server_.ended_);
    delete this;
  }

 private:
  void SendNext() {
    if (next_ < server_.script_.events.size()) {
      StartWrite(&server_.script_.events[next_++]);
    } else if (server_.script_.hang) {
      server_.stream_ = this;
      server_.Set(server_.hanging_);
    } else {
      Finish(server_.script_.status);
    }
  }

  FakeServer& server_;
  size_t next_ = 0;
};

FakeServer::FakeServer() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

FakeServer::~FakeServer() { server_->Shutdown(); }

std::string FakeServer::address() const { return "127.0.0.1:" + std::to_string(port_); }

void FakeServer::SetServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(serving);
}

v1::GenerateRequest FakeServer::last_request() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_request_;
}

void FakeServer::WaitUntilHanging() { WaitFor(hanging_); }
void FakeServer::EndHanging(const grpc::Status& status) {
  WaitUntilHanging();
  stream_->Finish(status);
  WaitFor(ended_);
  server_->Shutdown(std::chrono::system_clock::now());
}
void FakeServer::WaitUntilCancelled() { WaitFor(cancelled_); }

void FakeServer::Set(bool& flag) {
  const std::lock_guard<std::mutex> lock(mutex_);
  flag = true;
  changed_.notify_all();
}

void FakeServer::WaitFor(const bool& flag) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&flag] { return flag; });
}

void FakeServer::Remember(const v1::GenerateRequest& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_request_ = request;
}

grpc::ServerWriteReactor<v1::GenerateEvent>* FakeServer::GenerateStream(
    grpc::CallbackServerContext* /*context*/, const v1::GenerateRequest* request) {
  Remember(*request);
  return new Stream(*this);  // deletes itself in OnDone
}

grpc::Status FakeServer::Generate(grpc::ServerContext* /*context*/,
                                  const v1::GenerateRequest* request,
                                  v1::GenerateResponse* response) {
  Remember(*request);
  if (!script_.events.empty()) *response = script_.events.back().finished();
  return script_.status;
}

grpc::Status FakeServer::Cancel(grpc::ServerContext* /*context*/, const v1::CancelRequest* request,
                                v1::CancelResponse* response) {
  response->set_cancelled(request->request_id() == "running");
  return grpc::Status::OK;
}

grpc::Status FakeServer::GetModel(grpc::ServerContext* /*context*/,
                                  const v1::GetModelRequest* /*request*/,
                                  v1::GetModelResponse* response) {
  response->set_name("fake");
  response->set_parameters(17'300'000);
  v1::Preset& preset = *response->add_presets();
  preset.set_name("sparsed");
  preset.set_description("keeps the heaviest blocks");
  preset.mutable_attention()->set_preset("sparsed");
  preset.mutable_attention()->set_select("top_ratio");
  preset.mutable_attention()->set_prior("none");
  preset.mutable_attention()->set_ratio(0.3);
  preset.mutable_attention()->set_skip(0);
  preset.mutable_attention()->set_refresh_every(0);
  preset.mutable_attention()->set_guard(true);
  preset.mutable_attention()->mutable_sta_window()->set_t(11);
  return grpc::Status::OK;
}

grpc::Status FakeServer::GetLoad(grpc::ServerContext* /*context*/,
                                 const v1::GetLoadRequest* /*request*/,
                                 v1::GetLoadResponse* response) {
  response->set_running_rows(2);
  response->set_max_rows(8);
  response->set_draining(true);
  return grpc::Status::OK;
}

grpc::Status FakeServer::Tokenize(grpc::ServerContext* /*context*/,
                                  const v1::TokenizeRequest* request,
                                  v1::TokenizeResponse* response) {
  // One token a byte, and an end token.
  for (const char byte : request->text()) {
    response->add_ids(static_cast<unsigned char>(byte));
    response->add_pieces(std::string(1, byte));
  }
  response->add_ids(1);
  response->add_pieces("");
  return grpc::Status::OK;
}

grpc::Status FakeServer::Detokenize(grpc::ServerContext* /*context*/,
                                    const v1::DetokenizeRequest* request,
                                    v1::DetokenizeResponse* response) {
  for (const uint32_t id : request->ids())
    response->mutable_text()->push_back(static_cast<char>(id));
  return grpc::Status::OK;
}

}  // namespace sparsed::testing
