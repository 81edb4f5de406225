// SPDX-License-Identifier: Apache-2.0
// Leaves gRPC's xDS out of the binary. It is a twelfth of the binary, and serves "xds:" targets,
// which nothing here uses. gRPC registers each part in a function of its own. This empty function
// replaces the one for xDS, as in gRPC's own build without it (libgrpc_unsecure), so the linker
// takes nothing of xDS from the archive.
namespace grpc_core {

class CoreConfiguration {
 public:
  class Builder;
};

void RegisterExtraFilters(CoreConfiguration::Builder* builder);
void RegisterExtraFilters(CoreConfiguration::Builder* /*builder*/) {}

}  // namespace grpc_core
