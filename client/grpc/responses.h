// SPDX-License-Identifier: Apache-2.0
// Reads a server's responses. Each is checked against its call before any of the caller's memory is
// written. INTERNAL: the response does not match the call. Threads: pure functions.
#ifndef PHASOR_CLIENT_GRPC_RESPONSES_H_
#define PHASOR_CLIENT_GRPC_RESPONSES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/connection.h"
#include "kernels/base/text.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "phasor/v1/table_service.pb.h"
#include "proto/raw_message.h"

namespace phasor::client_internal {

// The INTERNAL error of a response that does not match its call.
template <typename... T>
absl::Status Unfit(const T&... what) {
  return absl::InternalError(StrCat("response: ", what...));
}

// A batch as it was sent. Items whose `local` status is not OK were sent empty and keep that
// status.
template <typename Call>
struct BatchCall {
  std::vector<Call> calls;
  std::vector<absl::Status> local;
  std::vector<int> destinations;  // of each item: outputs that the server writes
};

// Copies the outputs to where the calls want them. `destinations` is how many of them the server
// has already written; a batch holds this number for each item.
absl::Status ReadResponse(const WalkedMessage& message, const EncodeCall& call, int destinations,
                          EncodeResult& result);
absl::Status ReadResponse(const WalkedMessage& message, const RopeCall& call, int destinations,
                          RunInfo& result);
absl::Status ReadResponse(const WalkedMessage& message, const BiasCall& call, int destinations,
                          EncodeResult& result);
absl::Status ReadResponse(const WalkedMessage& message, const MoveCall& call, int destinations,
                          MoveResult& result);
absl::Status ReadResponse(const WalkedMessage& message, const BatchCall<EncodeCall>& batch, int,
                          std::vector<absl::StatusOr<EncodeResult>>& results);
absl::Status ReadResponse(const WalkedMessage& message, const BatchCall<RopeCall>& batch, int,
                          std::vector<absl::StatusOr<RunInfo>>& results);
absl::Status ReadResponse(const WalkedMessage& message, const BatchCall<MoveCall>& batch, int,
                          std::vector<absl::StatusOr<MoveResult>>& results);

// Reads one result of a stream; `message` holds its bytes. The error is the item's own.
absl::StatusOr<EncodeResult> ReadResult(const v1::EncodeResult& wire, const WalkedMessage& message,
                                        const EncodeCall& call, int destinations);
absl::StatusOr<RunInfo> ReadResult(const v1::ApplyRoPEResult& wire, const WalkedMessage& message,
                                   const RopeCall& call, int destinations);
absl::StatusOr<MoveResult> ReadResult(const v1::MoveKeysResult& wire, const WalkedMessage& message,
                                      const MoveCall& call, int destinations);

absl::StatusOr<SpecDetails> ReadResolveSpecResponse(const std::string& header);
absl::StatusOr<ModelDetails> ReadResolveModelResponse(const std::string& header);
absl::StatusOr<std::vector<Preset>> ReadListPresetsResponse(const std::string& header);
absl::StatusOr<ServerInfo> ReadServerInfoResponse(const std::string& header);

absl::StatusOr<TablePage> ReadListTablesResponse(const std::string& header);
absl::StatusOr<TableInfo> ReadGetTableResponse(const std::string& header);
// Also reads the table of a CreateTableResponse.
absl::StatusOr<TableInfo> TableFromWire(const v1::Table& wire);

// Messages of grpc.health.v1. There are two small ones, which are read and written by hand.
std::string WriteHealthRequest(const std::string& service);
absl::StatusOr<Health> ReadHealthResponse(const std::string& header);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_RESPONSES_H_
