// SPDX-License-Identifier: Apache-2.0
// The two control-flow macros this project has; Debian's Abseil ships none.
#pragma once

#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#define SPARSED_CONCAT_INNER(a, b) a##b
#define SPARSED_CONCAT(a, b) SPARSED_CONCAT_INNER(a, b)

// Returns the status from the enclosing function unless it is OK.
#define RETURN_IF_ERROR(expression)                          \
  do {                                                       \
    absl::Status status_macro_value = (expression);          \
    if (!status_macro_value.ok()) return status_macro_value; \
  } while (false)

// ASSIGN_OR_RETURN(auto value, FunctionThatReturnsStatusOr());
#define ASSIGN_OR_RETURN(declaration, expression) \
  SPARSED_ASSIGN_OR_RETURN(SPARSED_CONCAT(status_or_, __LINE__), declaration, expression)
#define SPARSED_ASSIGN_OR_RETURN(name, declaration, expression) \
  auto name = (expression);                                     \
  if (!name.ok()) return std::move(name).status();              \
  declaration = *std::move(name)
