// SPDX-License-Identifier: Apache-2.0
// Requests: from proto to engine types, with every unset field resolved and every field checked.
//
//   RETURN_IF_ERROR(CheckRequest(proto));                          // cheap: before a slot is taken
//   ASSIGN_OR_RETURN(std::vector<int32_t> prompt, EncodeInput(proto, model));
//   ASSIGN_OR_RETURN(Request request, ResolveRequest(proto, std::move(prompt), model));
//   *event.mutable_resolved() = EchoResolved(request);
//
// All errors are INVALID_ARGUMENT with the field's path (base/invalid_field.h). Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "engine/types.h"
#include "server/rpc/served_model.h"
#include "sparsed/v1/generation.pb.h"

namespace sparsed {

// What can be said without the model: request_id, that there is an input, streaming.
absl::Status CheckRequest(const v1::GenerateRequest& request);

// The prompt's token ids, from whichever input the request has.
absl::StatusOr<std::vector<int32_t>> EncodeInput(const v1::GenerateRequest& request,
                                                 const ServedModel& model);

// Unset fields: gen_length, temperature and preset are the model's defaults; block_length is the
// largest divisor of gen_length up to its default; steps is the largest multiple of the number of
// blocks up to its default and gen_length, at least one per block; a seed is drawn.
absl::StatusOr<Request> ResolveRequest(const v1::GenerateRequest& request,
                                       std::vector<int32_t> prompt, const ServedModel& model);

// `ids` in [0, vocabulary_size), the path of a bad one being "<field>[<index>]".
absl::StatusOr<std::vector<int32_t>> CheckTokenIds(
    const google::protobuf::RepeatedField<uint32_t>& ids, int32_t vocabulary_size,
    const std::string& field);

// The request's fields as they were resolved.
v1::Resolved EchoResolved(const Request& request);

v1::GetModelResponse DescribeModel(const ServedModel& model);

}  // namespace sparsed
