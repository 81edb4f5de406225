// SPDX-License-Identifier: Apache-2.0
// Runs one fuzzed ModelInfer and checks its outcome.
#include "tests/fuzz/check_infer.h"

#include <grpcpp/support/byte_buffer.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "inference/grpc_service.pb.h"
#include "kernels/backend/backend.h"
#include "kernels/backends.h"
#include "server/engine/engine.h"
#include "server/oip/datatype.h"
#include "server/oip/infer_call.h"
#include "tests/support/shared_memory.h"

namespace phasor::fuzz {
namespace {

// What outlives a request, as in a server. Everything runs on the caller's thread.
class InferServer {
 public:
  InferServer() {
    const absl::Status status =
        regions_.Register(kRegion, {memory_.key(), 0, kRegionBytes}, {"peer"});
    if (!status.ok()) Die(status);
  }

  const oip::InferContext& context() const { return context_; }

 private:
  static void Die(const absl::Status& status) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
  static std::unique_ptr<Backend> OneThread() {
    auto made = MakeBackend({.name = "cpu", .threads = 1});
    if (!made.ok()) Die(made.status());
    return *std::move(made);
  }
  static engine::EngineOptions Inline() {
    engine::EngineOptions options;
    options.workers = 1;
    options.inline_bytes = int64_t{1} << 40;
    options.plan_cache_bytes = 1 << 20;
    options.pool_bytes = 0;
    return options;
  }
  static memory::RegionStoreOptions Enabled() {
    memory::RegionStoreOptions options;
    options.enabled = true;
    return options;
  }

  const testing::SharedMemory memory_{std::string(kRegionBytes, '\x3C')};
  const std::unique_ptr<Backend> backend_ = OneThread();
  engine::Engine engine_{Inline(), backend_.get(), Clock::Real()};
  memory::RegionStore regions_{Enabled()};
  oip::ModelCatalogue models_;
  oip::StatisticsBook statistics_;
  const oip::InferContext context_ = {&engine_, nullptr,      {.regions = &regions_},
                                      &models_, &statistics_, kMaxResponseBytes,
                                      1 << 20};
};

// Freed at the end, so that its shared memory loses its name.
InferServer& TheInferServer() {
  static InferServer server;
  return server;
}

std::string InferViolation(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:  // the request's own timeout
      break;
    default:
      return absl::StrCat("code not allowed: ", status.ToString());
  }
  const bool has_path = status.message().find(": ") != absl::string_view::npos;
  return has_path ? "" : absl::StrCat("message without a field path: ", status.ToString());
}

// That clients can read the answer: a raw entry for every output, of its size or, when it is in
// shared memory, empty.
std::string CheckAnswer(grpc::ByteBuffer* buffer) {
  if (static_cast<int64_t>(buffer->Length()) > kMaxResponseBytes) return "response over the limit";
  std::vector<grpc::Slice> slices;
  if (!buffer->Dump(&slices).ok()) return "response cannot be read";
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  inference::ModelInferResponse response;
  if (!response.ParseFromString(bytes)) return "response does not parse";
  if (response.outputs_size() != response.raw_output_contents_size()) {
    return "an output without raw entry";
  }
  for (int i = 0; i < response.outputs_size(); ++i) {
    const auto& output = response.outputs(i);
    const auto dtype = oip::DtypeOf(output.datatype());
    if (!dtype.has_value()) return "an output of no type";
    int64_t size = SizeOf(*dtype);
    for (const int64_t extent : output.shape()) size *= extent;
    const auto raw = static_cast<int64_t>(response.raw_output_contents(i).size());
    const bool shared = output.parameters().contains("shared_memory_region");
    if (raw != (shared ? 0 : size)) {
      return absl::StrCat("output ", i, ": ", raw, " bytes for ", size);
    }
  }
  return "";
}

}  // namespace

Outcome CheckInfer(absl::Span<const absl::Span<const std::byte>> pieces) {
  std::vector<grpc::Slice> slices;
  for (const auto& piece : pieces) slices.emplace_back(piece.data(), piece.size());
  grpc::ByteBuffer request(slices.data(), slices.size());
  slices.clear();
  absl::Notification done;
  Outcome outcome;
  StartInfer(TheInferServer().context(), &request,
             {absl::InfiniteFuture(), 0, [] { return false; }}, [&](oip::InferAnswer answer) {
               outcome.computed = answer.status.ok();
               outcome.violation = answer.status.ok() ? CheckAnswer(&answer.response)
                                                      : InferViolation(answer.status);
               done.Notify();
             });
  done.WaitForNotification();
  return outcome;
}

}  // namespace phasor::fuzz
