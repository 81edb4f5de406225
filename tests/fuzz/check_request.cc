// SPDX-License-Identifier: Apache-2.0
// Runs one fuzzed request and checks its outcome.
#include "tests/fuzz/check_request.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend/backend.h"
#include "kernels/backends.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/protobuf_log.h"
#include "proto/raw_message.h"
#include "server/api/request_view.h"
#include "server/api/response.h"
#include "server/engine/plan_cache.h"
#include "server/engine/run_call.h"
#include "tests/fuzz/check_infer.h"

namespace phasor::fuzz {
namespace {

using Piece = absl::Span<const std::byte>;

struct Method {
  absl::StatusOr<rpc::RequestView> (*parse)(const WalkedMessage&, const rpc::ViewContext&);
  grpc::ByteBuffer (*respond)(absl::Span<const engine::Item>, const engine::Result&);
  bool batch;
  std::unique_ptr<google::protobuf::Message> (*new_response)();
};

template <typename Message>
std::unique_ptr<google::protobuf::Message> New() {
  return std::make_unique<Message>();
}

const Method kMethods[] = {
    {rpc::ParseEncode, rpc::MakeTensorResponse, false, New<v1::EncodeResponse>},
    {rpc::ParseApplyRoPE, rpc::MakeTensorResponse, false, New<v1::ApplyRoPEResponse>},
    {rpc::ParseBatchEncode, rpc::MakeBatchTensorResponse, true, New<v1::BatchEncodeResponse>},
    {rpc::ParseBatchApplyRoPE, rpc::MakeBatchTensorResponse, true, New<v1::BatchApplyRoPEResponse>},
    {rpc::ParseMoveKeys, rpc::MakeMoveKeysResponse, false, New<v1::MoveKeysResponse>},
    {rpc::ParseBatchMoveKeys, rpc::MakeBatchMoveKeysResponse, true, New<v1::BatchMoveKeysResponse>},
};

static_assert(std::size(kMethods) + 1 == kMethodCount);

// What outlives a request, as in a server.
struct Server {
  std::unique_ptr<Backend> backend = MakeOneThread();
  engine::PlanCache plans{1 << 20};
  engine::BufferPool pool{0};

  static std::unique_ptr<Backend> MakeOneThread() {
    SilenceProtobufLog();
    auto made = MakeBackend({.name = "cpu", .threads = 1});
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
      std::abort();
    }
    return *std::move(made);
  }
};

Server& TheServer() {
  static auto* const server = new Server;
  return *server;
}

// A call that nobody waits for.
class FuzzCall final : public engine::Call {
 public:
  bool cancelled() const override { return false; }
  void Done(absl::StatusOr<engine::Result>) override {}
};

// The message in pieces of their own allocations, so that reads beyond one are seen by ASan.
class CutMessage {
 public:
  CutMessage(absl::Span<const uint8_t> bytes, uint8_t cut) {
    uint32_t state = cut;
    while (!bytes.empty()) {
      state = state * 1664525u + 1013904223u;
      const size_t wanted = cut == 0 ? bytes.size() : (state >> 16) % (4u * cut) + 1;
      const size_t size = std::min(bytes.size(), wanted);
      auto memory = std::make_unique<std::byte[]>(size);
      std::memcpy(memory.get(), bytes.data(), size);
      pieces_.emplace_back(memory.get(), size);
      memory_.push_back(std::move(memory));
      bytes.remove_prefix(size);
    }
  }
  absl::Span<const Piece> pieces() const { return pieces_; }

 private:
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<Piece> pieces_;
};

bool MayCallerSee(absl::StatusCode code) {
  return code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kNotFound ||
         code == absl::StatusCode::kUnimplemented ||
         code == absl::StatusCode::kFailedPrecondition ||
         code == absl::StatusCode::kResourceExhausted;
}

// Empty when the status may be answered to a malformed request.
std::string Violation(const absl::Status& status) {
  if (status.ok()) return "";
  if (!MayCallerSee(status.code())) return absl::StrCat("code not allowed: ", status.ToString());
  if (status.message().find(": ") == absl::string_view::npos) {
    return absl::StrCat("message without a field path: ", status.ToString());
  }
  return "";
}

std::string CheckResponse(const Method& method, const engine::Call& call,
                          const engine::Result& result) {
  const grpc::ByteBuffer buffer = method.respond(call.items, result);
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return "response cannot be read";
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  if (static_cast<int64_t>(bytes.size()) > kMaxResponseBytes) return "response over the limit";
  return method.new_response()->ParseFromString(bytes) ? "" : "response does not parse";
}

Outcome Run(const Method& method, std::vector<engine::Item> items) {
  FuzzCall call;
  call.batch = method.batch;
  call.items = std::move(items);
  engine::Call* const calls[] = {&call};
  auto result =
      std::move(engine::RunCalls(calls, *TheServer().backend, TheServer().pool, *Clock::Real())[0]);
  if (!result.ok()) return {absl::StrCat("run failed: ", result.status().ToString())};
  Outcome outcome;
  for (const engine::ItemResult& item : result->items) {
    outcome.computed = outcome.computed || item.status.ok();
    outcome.violation = Violation(item.status);
    if (!outcome.violation.empty()) return outcome;
  }
  if (method.batch || outcome.computed) outcome.violation = CheckResponse(method, call, *result);
  return outcome;
}

}  // namespace

Outcome CheckRequest(absl::Span<const uint8_t> input) {
  if (input.size() < 2) return {};
  const CutMessage message(input.subspan(2), input[1]);
  const size_t chosen = input[0] % kMethodCount;
  if (chosen == kModelInfer) return CheckInfer(message.pieces());
  const Method& method = kMethods[chosen < kModelInfer ? chosen : chosen - 1];
  const auto walked = WalkMessage(message.pieces(), {});
  if (!walked.ok()) return {Violation(walked.status())};
  const auto plans = [](const ResolvedSpec& spec) { return TheServer().plans.Get(spec); };
  auto view = method.parse(*walked, {plans, "cpu", kMaxResponseBytes, /*max_batch_items=*/64});
  if (!view.ok()) return {Violation(view.status())};
  if (view->response_bytes > kMaxResponseBytes) return {"response over the limit was let in"};
  return Run(method, std::move(view->items));
}

}  // namespace phasor::fuzz
