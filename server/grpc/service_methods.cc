// SPDX-License-Identifier: Apache-2.0
// Reads the methods of services from protobuf's descriptors.
#include "server/grpc/service_methods.h"

#include <google/protobuf/descriptor.h>

#include "kernels/base/text.h"

namespace phasor::rpc {

std::vector<std::string> ServiceMethods(absl::Span<const std::string> services) {
  std::vector<std::string> methods;
  for (const std::string& name : services) {
    const auto* const service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    for (int i = 0; service != nullptr && i < service->method_count(); ++i) {
      methods.push_back(StrCat(name, "/", service->method(i)->name()));
    }
  }
  return methods;
}

}  // namespace phasor::rpc
