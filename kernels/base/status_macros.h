// SPDX-License-Identifier: Apache-2.0
// Macros that return early with an absl::Status.
#ifndef PHASOR_KERNELS_BASE_STATUS_MACROS_H_
#define PHASOR_KERNELS_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define PHASOR_RETURN_IF_ERROR(expression)                                                    \
  do {                                                                                        \
    if (absl::Status phasor_status = (expression); !phasor_status.ok()) return phasor_status; \
  } while (false)

#define PHASOR_CONCAT_(a, b) a##b
#define PHASOR_CONCAT(a, b) PHASOR_CONCAT_(a, b)
#define PHASOR_ASSIGN_OR_RETURN(lhs, expression) \
  PHASOR_ASSIGN_OR_RETURN_(PHASOR_CONCAT(phasor_or_, __LINE__), lhs, expression)
#define PHASOR_ASSIGN_OR_RETURN_(var, lhs, expression) \
  auto var = (expression);                             \
  if (!var.ok()) return std::move(var).status();       \
  lhs = *std::move(var)

#endif  // PHASOR_KERNELS_BASE_STATUS_MACROS_H_
