// SPDX-License-Identifier: Apache-2.0
#include "bench/batch_run.h"

#include <map>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"

namespace sparsed {
namespace {

// The rows of a batch that are in the engine.
class RunningRows {
 public:
  RunningRows(Engine* engine, const Batch* batch) : engine_(engine), batch_(batch) {}
  ~RunningRows() {
    for (const auto& [id, row] : rows_) engine_->Cancel(id);
  }
  RunningRows(const RunningRows&) = delete;
  RunningRows& operator=(const RunningRows&) = delete;

  int32_t size() const { return static_cast<int32_t>(rows_.size()); }

  absl::Status Start(size_t index) {
    ASSIGN_OR_RETURN(Request request, batch_->request(index));
    RowTally tally(request.canvas);
    ASSIGN_OR_RETURN(const RequestId id, engine_->Admit(std::move(request)));
    rows_.emplace(id, Row{index, std::move(tally)});
    return absl::OkStatus();
  }

  absl::Status Step() {
    std::vector<RequestId> ids;
    for (const auto& [id, row] : rows_) ids.push_back(id);
    for (const StepResult& result : engine_->Step(ids)) {
      RETURN_IF_ERROR(result.status);
      Row& row = rows_.at(result.id);
      row.tally.Add(result);
      if (!row.tally.finished()) continue;
      RETURN_IF_ERROR(batch_->done(row.index, row.tally));
      rows_.erase(result.id);
    }
    return absl::OkStatus();
  }

 private:
  struct Row {
    size_t index;
    RowTally tally;
  };

  Engine* const engine_;
  const Batch* const batch_;
  std::map<RequestId, Row> rows_;
};

}  // namespace

absl::Status RunBatch(Engine* engine, const Batch& batch) {
  RunningRows running(engine, &batch);
  size_t next = 0;
  while (next < batch.count || running.size() > 0) {
    if (batch.stop()) return absl::CancelledError("interrupted");
    while (next < batch.count && running.size() < batch.max_rows) {
      RETURN_IF_ERROR(running.Start(next++));
    }
    RETURN_IF_ERROR(running.Step());
  }
  return absl::OkStatus();
}

}  // namespace sparsed
