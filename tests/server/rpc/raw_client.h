// SPDX-License-Identifier: Apache-2.0
// RawClient: calls any method with any bytes, for requests that a well-behaved client cannot make
// and for services whose .proto is not at hand (health, reflection).
//   RawClient client(channel);
//   grpc::Status status = client.Unary("/grpc.health.v1.Health/Check", "", &answer);
//   RawClient::Stream watch(channel, "/grpc.health.v1.Health/Watch", "");  watch.Read()
// Blocking; one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

namespace sparsed::testing {

inline grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

inline std::string ToBytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

class RawClient {
 public:
  explicit RawClient(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {}

  grpc::Status Unary(const std::string& method, const std::string& request, std::string* answer) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto call = stub_.PrepareUnaryCall(&context, method, ToBuffer(request), &queue);
    call->StartCall();
    grpc::ByteBuffer buffer;
    grpc::Status status;
    call->Finish(&buffer, &status, this);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    if (status.ok()) *answer = ToBytes(buffer);
    return status;
  }

  // A streaming call with one request. Ends with its destructor.
  class Stream {
   public:
    Stream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
           const std::string& request)
        : stub_(channel), call_(stub_.PrepareCall(&context_, method, &queue_)) {
      call_->StartCall(this);
      Wait();
      call_->Write(ToBuffer(request), this);
      Wait();
    }
    ~Stream() {
      context_.TryCancel();
      grpc::Status status;
      call_->Finish(&status, this);
      Wait();
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // The next message; nothing when the stream is over.
    std::optional<std::string> Read() {
      grpc::ByteBuffer buffer;
      call_->Read(&buffer, this);
      if (!Wait()) return std::nullopt;
      return ToBytes(buffer);
    }

   private:
    bool Wait() {
      void* tag = nullptr;
      bool ok = false;
      return queue_.Next(&tag, &ok) && ok;
    }

    grpc::GenericStub stub_;
    grpc::ClientContext context_;
    grpc::CompletionQueue queue_;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  };

 private:
  grpc::GenericStub stub_;
};

// grpc.health.v1.HealthCheckRequest for a service, and the status in its response.
inline std::string HealthRequest(const std::string& service) {
  if (service.empty()) return "";
  return std::string("\x0a") + static_cast<char>(service.size()) + service;
}
inline const char kServing[] = "\x08\x01";
inline const char kNotServing[] = "\x08\x02";

}  // namespace sparsed::testing
