// SPDX-License-Identifier: Apache-2.0
// FakeServer: a gRPC server on a free port of 127.0.0.1 that plays a script instead of running a
// model.
//
//   FakeServer server;
//   server.SetScript({.events = TwoStepEvents(), .status = grpc::Status::OK});
//   … a client of server.address() …
//   EXPECT_EQ(server.last_request().prompt(), "hello");
//
// Set the script before the client runs; the other members may be used from any thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "sparsed/v1/generation.grpc.pb.h"

namespace sparsed::testing {

// What GenerateStream does; Generate returns the script's finished event or its status.
struct FakeScript {
  std::vector<v1::GenerateEvent> events = {};
  // After the events: wait until the client cancels.
  bool hang = false;
  grpc::Status status = grpc::Status::OK;
};

// started, two progress events that spell "Hi 東" out of order, finished.
std::vector<v1::GenerateEvent> TwoStepEvents();

class FakeServer : private v1::GenerationService::WithCallbackMethod_GenerateStream<
                       v1::GenerationService::Service> {
 public:
  FakeServer();
  ~FakeServer() override;

  std::string address() const;
  void SetScript(FakeScript script) { script_ = std::move(script); }
  void SetServing(bool serving);
  v1::GenerateRequest last_request();

  // Blocks until a hanging stream has sent its events.
  void WaitUntilHanging();
  // Ends a hanging stream and then the server, as sparsed does at its drain limit.
  void EndHanging(const grpc::Status& status);
  // Blocks until the client of a hanging stream has cancelled it.
  void WaitUntilCancelled();

 private:
  class Stream;
  grpc::ServerWriteReactor<v1::GenerateEvent>* GenerateStream(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        v1::GenerateResponse* response) override;
  grpc::Status Cancel(grpc::ServerContext* context, const v1::CancelRequest* request,
                      v1::CancelResponse* response) override;
  grpc::Status GetModel(grpc::ServerContext* context, const v1::GetModelRequest* request,
                        v1::GetModelResponse* response) override;
  grpc::Status GetLoad(grpc::ServerContext* context, const v1::GetLoadRequest* request,
                       v1::GetLoadResponse* response) override;
  grpc::Status Tokenize(grpc::ServerContext* context, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override;
  grpc::Status Detokenize(grpc::ServerContext* context, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override;
  void Remember(const v1::GenerateRequest& request);
  void Set(bool& flag);
  void WaitFor(const bool& flag);

  FakeScript script_;
  std::mutex mutex_;
  std::condition_variable changed_;
  v1::GenerateRequest last_request_;  // guarded by mutex_, as are the flags
  bool hanging_ = false;
  bool cancelled_ = false;
  bool ended_ = false;
  Stream* stream_ = nullptr;  // the one that hangs
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace sparsed::testing
