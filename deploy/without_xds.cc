// SPDX-License-Identifier: Apache-2.0
// Leaves gRPC's xDS out of the binary: a twelfth of it, for targets "xds:" that nobody here offers.
// gRPC registers its parts in functions of their own, this one for xDS, and has an empty one for
// builds without (libgrpc_unsecure); with this one here, the linker takes nothing of xDS from the
// archive.
namespace grpc_core {

class CoreConfiguration {
 public:
  class Builder;
};

void RegisterExtraFilters(CoreConfiguration::Builder* builder);
void RegisterExtraFilters(CoreConfiguration::Builder* /*builder*/) {}

}  // namespace grpc_core
