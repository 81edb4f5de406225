// SPDX-License-Identifier: Apache-2.0
// Names of the methods of compiled-in services.
#ifndef PHASOR_SERVER_GRPC_SERVICE_METHODS_H_
#define PHASOR_SERVER_GRPC_SERVICE_METHODS_H_

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace phasor::rpc {

// All methods of `services`, which are full names, as "package.Service/Method". A service that is
// not compiled in has none.
std::vector<std::string> ServiceMethods(absl::Span<const std::string> services);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_SERVICE_METHODS_H_
