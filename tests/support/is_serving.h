// SPDX-License-Identifier: Apache-2.0
// Asks a server for its health.
#ifndef PHASOR_TESTS_SUPPORT_IS_SERVING_H_
#define PHASOR_TESTS_SUPPORT_IS_SERVING_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/support/running_server.h"

namespace phasor::testing {

inline bool IsServing(const std::shared_ptr<grpc::Channel>& channel,
                      const std::string& service = "") {
  using grpc::health::v1::Health;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  EXPECT_TRUE(Call(*Health::NewStub(channel), &Health::Stub::Check, request, &response).ok());
  return response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_IS_SERVING_H_
