// SPDX-License-Identifier: Apache-2.0
// How this folder is laid out. An operator has a topic (attention, select, score, reorder, fused);
// a topic is two files:
//   <topic>.h   adaptors, e.g. SelectBlocksOp<Implementation>: the schema's arguments in, checked
//               once for every device and caller, then the implementation, a function with the
//               signature of kernels/<topic>.h
//   <topic>.cc  the schemas, the checks, and the C++ entry points of kernels/<topic>.h, which go
//               through Torch's dispatcher
// A device names its implementations in one list: cpu/registration.cc, and reference/fallback.cc
// for every device without kernels of its own.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace sparsed::kernels::ops {

// The operator `name`, to call with the types of an adaptor's signature. Keep it in a static.
template <class Signature>
c10::TypedOperatorHandle<Signature> FindOperator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace sparsed::kernels::ops
