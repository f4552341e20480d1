// SPDX-License-Identifier: Apache-2.0
// TorchGuard: the one place where LibTorch's exceptions become a Status.
//   RETURN_IF_ERROR(TorchGuard([&] { hidden = model.Forward(batch); }));
// Out of memory: RESOURCE_EXHAUSTED. Anything else: INTERNAL with LibTorch's message, without its
// backtrace.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <c10/util/Exception.h>

namespace sparsed {

template <class Function>
absl::Status TorchGuard(Function&& function) {
  try {
    std::forward<Function>(function)();
    return absl::OkStatus();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return absl::InternalError(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace sparsed
