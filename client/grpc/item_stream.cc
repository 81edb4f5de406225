// SPDX-License-Identifier: Apache-2.0
// Streams of Encode, ApplyRoPE and MoveKeys calls over gRPC.
#include "client/grpc/item_stream.h"

#include <map>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "client/common/calls.h"
#include "client/grpc/byte_buffer.h"
#include "client/grpc/grpc_channel.h"
#include "client/grpc/raw_stream.h"
#include "client/grpc/responses.h"
#include "client/grpc/wire_items.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "phasor/v1/position_embedding_service.pb.h"

namespace phasor::client_internal {
namespace {

struct EncodeMethod {
  using Call = EncodeCall;
  using Result = EncodeResult;
  using Request = v1::StreamEncodeRequest;
  using Response = v1::StreamEncodeResponse;
  static constexpr char kName[] = "/phasor.v1.PositionEmbeddingService/StreamEncode";
};
struct RopeMethod {
  using Call = RopeCall;
  using Result = RunInfo;
  using Request = v1::StreamApplyRoPERequest;
  using Response = v1::StreamApplyRoPEResponse;
  static constexpr char kName[] = "/phasor.v1.PositionEmbeddingService/StreamApplyRoPE";
};
struct MoveMethod {
  using Call = MoveCall;
  using Result = MoveResult;
  using Request = v1::StreamMoveKeysRequest;
  using Response = v1::StreamMoveKeysResponse;
  static constexpr char kName[] = "/phasor.v1.PositionEmbeddingService/StreamMoveKeys";
};

// A stream of calls of one RPC. Owns what its calls own until they are answered. Threads: as
// ItemStream.
template <typename Method>
class GrpcItemStream final : public ItemStream<typename Method::Call, typename Method::Result> {
 public:
  using Call = typename Method::Call;
  using Answer = StreamAnswer<typename Method::Result>;

  GrpcItemStream(const std::shared_ptr<grpc::Channel>& channel,
                 std::shared_ptr<const LeaseHolder> leases, const CallContext& context)
      : leases_(std::move(leases)), stream_(channel, Method::kName, context) {}

  absl::Status Write(int64_t id, Call call) override {
    const auto sent = std::make_shared<Sent>(Sent{std::move(call), {}, stream_.NewLoan()});
    const std::shared_ptr<LeaseClient> leases = leases_->Get();
    sent->payload.leases = leases.get();
    sent->payload.connection = leases_.get();
    PHASOR_ASSIGN_OR_RETURN(auto item, MakeItem(sent->call, kItemPath, sent->payload));
    typename Method::Request request;
    request.set_id(id);
    request.mutable_item()->Swap(&item);
    const std::string header = request.SerializeAsString();
    PHASOR_RETURN_IF_ERROR(CheckMessageBytes(RawMessageBytes(header, sent->payload.raw)));
    {
      std::lock_guard lock(mutex_);
      if (!sent_.emplace(id, sent).second) {
        return Invalid("id: ", id, " is not answered yet; must be another until then");
      }
    }
    if (stream_.Write(header, sent->payload.raw, sent->loan)) return absl::OkStatus();
    return absl::FailedPreconditionError("stream: has ended; Finish says why");
  }

  bool WaitToWrite() override { return stream_.WaitToWrite(); }

  std::optional<Answer> Read() override {
    grpc::ByteBuffer bytes;
    if (!broken_.ok() || !stream_.Read(&bytes)) return std::nullopt;
    absl::StatusOr<Answer> answer = ReadAnswer(bytes);
    if (answer.ok()) return *std::move(answer);
    broken_ = answer.status();
    stream_.Cancel();
    return std::nullopt;
  }

  void WritesDone() override { stream_.WritesDone(); }

  absl::Status Finish() override {
    stream_.WritesDone();
    while (Read().has_value()) {
    }
    absl::Status status = stream_.Finish();
    return broken_.ok() ? status : broken_;
  }

 private:
  struct Sent {
    Call call;
    Payload payload;
    Loan loan;
  };

  absl::StatusOr<Answer> ReadAnswer(const grpc::ByteBuffer& bytes) {
    PHASOR_ASSIGN_OR_RETURN(const ReceivedMessage message, ReadRawMessage(bytes));
    typename Method::Response response;
    if (!response.ParseFromString(message.header)) {
      return absl::InternalError("response: cannot be parsed");
    }
    const std::shared_ptr<Sent> sent = Find(response.id());
    if (sent == nullptr) {
      return absl::InternalError(StrCat("response: id ", response.id(),
                                        " was not asked for; is the server of another version?"));
    }
    if (!stream_.WaitForReturn(sent->loan)) {
      return absl::InternalError(
          StrCat("response: id ", response.id(), " was answered before it was sent"));
    }
    Forget(response.id());
    return Answer{response.id(),
                  ReadResult(response.result(), message, sent->call, sent->payload.destinations)};
  }

  std::shared_ptr<Sent> Find(int64_t id) {
    std::lock_guard lock(mutex_);
    const auto found = sent_.find(id);
    return found == sent_.end() ? nullptr : found->second;
  }
  void Forget(int64_t id) {
    std::lock_guard lock(mutex_);
    sent_.erase(id);
  }

  const std::shared_ptr<const LeaseHolder> leases_;
  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<Sent>> sent_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_;  // used by the reading thread
  RawStream stream_;     // destroyed first: it waits for memory that it borrowed
};

}  // namespace

std::unique_ptr<EncodeStream> MakeEncodeStream(const std::shared_ptr<grpc::Channel>& channel,
                                               std::shared_ptr<const LeaseHolder> leases,
                                               const CallContext& context) {
  return std::make_unique<GrpcItemStream<EncodeMethod>>(channel, std::move(leases), context);
}

std::unique_ptr<RopeStream> MakeRopeStream(const std::shared_ptr<grpc::Channel>& channel,
                                           std::shared_ptr<const LeaseHolder> leases,
                                           const CallContext& context) {
  return std::make_unique<GrpcItemStream<RopeMethod>>(channel, std::move(leases), context);
}

std::unique_ptr<MoveStream> MakeMoveStream(const std::shared_ptr<grpc::Channel>& channel,
                                           std::shared_ptr<const LeaseHolder> leases,
                                           const CallContext& context) {
  return std::make_unique<GrpcItemStream<MoveMethod>>(channel, std::move(leases), context);
}

}  // namespace phasor::client_internal
