// SPDX-License-Identifier: Apache-2.0
// Tests the names of methods of compiled-in services.
#include "server/grpc/service_methods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grpc/health/v1/health.pb.h"

namespace phasor::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ServiceMethodsTest, NamesEveryMethodOfAServiceInItsOrder) {
  static_cast<void>(grpc::health::v1::HealthCheckRequest::descriptor());  // links the service
  EXPECT_THAT(ServiceMethods({"grpc.health.v1.Health"}),
              ElementsAre("grpc.health.v1.Health/Check", "grpc.health.v1.Health/Watch"));
}

TEST(ServiceMethodsTest, AServiceThatIsNotCompiledInHasNone) {
  EXPECT_THAT(ServiceMethods({"no.such.Service"}), IsEmpty());
}

}  // namespace
}  // namespace phasor::rpc
