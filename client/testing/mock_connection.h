// SPDX-License-Identifier: Apache-2.0
// MockConnection, a gmock Connection for tests of programs that use a Client:
//
//   auto connection = std::make_shared<phasor::MockConnection>();
//   EXPECT_CALL(*connection, Encode).WillOnce(phasor::Answer(absl::UnavailableError("down")));
//   phasor::Client client(connection);
#ifndef PHASOR_CLIENT_TESTING_MOCK_CONNECTION_H_
#define PHASOR_CLIENT_TESTING_MOCK_CONNECTION_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/connection.h"
#include "gmock/gmock.h"

namespace phasor {

// A connection whose calls a test expects and answers.
class MockConnection : public Connection {
 public:
  MOCK_METHOD(void, Encode, (EncodeCall, CallContext, Done<EncodeResult>), (override));
  MOCK_METHOD(void, ApplyRoPE, (RopeCall, CallContext, Done<RunInfo>), (override));
  MOCK_METHOD(void, BatchEncode,
              (std::vector<EncodeCall>, CallContext,
               Done<std::vector<absl::StatusOr<EncodeResult>>>),
              (override));
  MOCK_METHOD(void, BatchApplyRoPE,
              (std::vector<RopeCall>, CallContext, Done<std::vector<absl::StatusOr<RunInfo>>>),
              (override));
  MOCK_METHOD(void, AttentionBias, (BiasCall, CallContext, Done<EncodeResult>), (override));
  MOCK_METHOD(void, MoveKeys, (MoveCall, CallContext, Done<MoveResult>), (override));
  MOCK_METHOD(void, BatchMoveKeys,
              (std::vector<MoveCall>, CallContext, Done<std::vector<absl::StatusOr<MoveResult>>>),
              (override));
  MOCK_METHOD(void, ListTables, (std::string, CallContext, Done<TablePage>), (override));
  MOCK_METHOD(void, GetTable, (std::string, CallContext, Done<TableInfo>), (override));
  MOCK_METHOD(void, CreateTable, (std::string, TensorView, CallContext, Done<TableInfo>),
              (override));
  MOCK_METHOD(void, DeleteTable, (std::string, CallContext, absl::AnyInvocable<void(absl::Status)>),
              (override));
  MOCK_METHOD(std::unique_ptr<EncodeStream>, StreamEncode, (CallContext), (override));
  MOCK_METHOD(std::unique_ptr<RopeStream>, StreamApplyRoPE, (CallContext), (override));
  MOCK_METHOD(std::unique_ptr<MoveStream>, StreamMoveKeys, (CallContext), (override));
  MOCK_METHOD(void, ApplyRoPEInChunks,
              (std::vector<RopeCall>, ChunkOptions, CallContext, Done<RunInfo>), (override));
  MOCK_METHOD(void, AllocateShared, (int64_t, CallContext, Done<SharedMemory>), (override));
  MOCK_METHOD(void, RegisterDeviceMemory, (CudaIpcAllocation, CallContext, Done<DeviceMemory>),
              (override));
  MOCK_METHOD(void, ResolveSpec,
              (Spec, std::optional<parity::Comparison>, CallContext, Done<SpecDetails>),
              (override));
  MOCK_METHOD(void, ResolveModel, (Spec, CallContext, Done<ModelDetails>), (override));
  MOCK_METHOD(void, ListPresets, (CallContext, Done<std::vector<Preset>>), (override));
  MOCK_METHOD(void, GetServerInfo, (CallContext, Done<ServerInfo>), (override));
  MOCK_METHOD(void, CheckHealth, (std::string, CallContext, Done<Health>), (override));
};

// An action that passes `answer`, a status or a result, to the callback `done`, the last argument.
// Runs only once.
template <typename T>
auto Answer(T answer) {
  return [shared = std::make_shared<T>(std::move(answer))](auto&&... args) {
    auto all = std::forward_as_tuple(args...);
    std::get<sizeof...(args) - 1>(all)(std::move(*shared));
  };
}

}  // namespace phasor

#endif  // PHASOR_CLIENT_TESTING_MOCK_CONNECTION_H_
