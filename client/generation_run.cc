// SPDX-License-Identifier: Apache-2.0
#include "client/generation_run.h"

#include <fstream>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include "client/exit_code.h"
#include "client/failure.h"
#include "client/generation_view.h"
#include "client/json_output.h"

namespace sparsed::client {
namespace {

struct Result {
  grpc::Status status;
  bool interrupted = false;
  v1::GenerateResponse response;
};

Result RunStream(Session& session, const v1::GenerateRequest& request, GenerationView& view) {
  Result result;
  const auto context = session.connection.NewContext();
  const Interrupt::Scope scope(session.interrupt, [&context] { context->TryCancel(); });
  const auto reader = session.connection.generation().GenerateStream(context.get(), request);
  v1::GenerateEvent event;
  bool started = false;
  bool finished = false;
  while (reader->Read(&event)) {
    started = true;
    view.OnEvent(event);
    if (!event.has_finished()) continue;
    finished = true;
    result.response = event.finished();
  }
  result.status = reader->Finish();
  result.interrupted = scope.raised();
  if (result.status.ok() && !finished) {
    result.status = grpc::Status(grpc::StatusCode::ABORTED, "the stream ended without a result");
  }
  const bool unavailable = result.status.error_code() == grpc::StatusCode::UNAVAILABLE;
  if (unavailable && started && !IsServersWord(result.status)) {
    result.status = grpc::Status(grpc::StatusCode::ABORTED,
                                 "the connection to the server was lost before the result came");
  }
  return result;
}

Result RunUnary(Session& session, const v1::GenerateRequest& request, GenerationView& view) {
  Result result;
  result.status = Call(session, &v1::GenerationService::Stub::Generate, request, result.response,
                       &result.interrupted);
  if (result.status.ok()) view.OnResponse(result.response);
  return result;
}

}  // namespace

GenerationOutcome RunGeneration(Session& session, const GenerationSettings& settings) {
  std::ofstream save;
  if (!settings.save_file.empty()) {
    save.open(settings.save_file);
    if (!save) {
      const std::string error = absl::StrCat("cannot write the file ", settings.save_file);
      return {ReportBadInput(absl::NotFoundError(error)), ""};
    }
  }
  Result result;
  {
    // The view gives the terminal back before anything else is written.
    const std::unique_ptr<GenerationView> view = MakeGenerationView(session.options);
    view->OnSent();
    result = settings.stream ? RunStream(session, settings.request, *view)
                             : RunUnary(session, settings.request, *view);
  }
  if (!result.status.ok()) {
    const int exit_code =
        result.interrupted ? ReportInterrupted() : ReportFailure(session, result.status);
    return {exit_code, ""};
  }
  if (save.is_open()) save << JsonLine(result.response);
  return {kExitOk, result.response.text()};
}

}  // namespace sparsed::client
