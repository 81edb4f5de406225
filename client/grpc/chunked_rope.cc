// SPDX-License-Identifier: Apache-2.0
// Rotates tensors of any size over a stream of chunks. One thread writes chunks while the caller's
// thread reads answers.
#include "client/grpc/chunked_rope.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "client/common/calls.h"
#include "client/common/runs.h"
#include "client/grpc/byte_buffer.h"
#include "client/grpc/raw_stream.h"
#include "client/grpc/responses.h"
#include "client/grpc/wire_items.h"
#include "kernels/base/status_macros.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert.h"

namespace phasor::client_internal {
namespace {

constexpr char kMethod[] = "/phasor.v1.PositionEmbeddingService/StreamApplyRoPE";

// One call of RopeInChunks. Threads: one thread calls Write, another one everything else.
class ChunkedRope {
 public:
  ChunkedRope(const std::shared_ptr<grpc::Channel>& channel, const std::vector<RopeCall>& entries,
              const ChunkOptions& options, const CallContext& context)
      : entries_(entries), options_(options), stream_(channel, kMethod, context) {
    for (const RopeCall& entry : entries) all_tokens_ += TokensOf(entry);
  }

  // The writer still runs if `progress` has thrown.
  ~ChunkedRope() {
    stream_.Cancel();
    if (writer_.joinable()) writer_.join();
  }

  absl::StatusOr<RunInfo> Run() {
    writer_ = std::thread([this] { WriteAll(); });
    const absl::Status status = ReadAll();
    const bool broken = !status.ok() && !ended_;
    if (broken) stream_.Cancel();  // so that the writer does not block any more
    writer_.join();                // before Finish, after which nobody may write
    PHASOR_RETURN_IF_ERROR(write_error_);
    if (!broken) PHASOR_RETURN_IF_ERROR(stream_.Finish());
    PHASOR_RETURN_IF_ERROR(status);
    return info_;
  }

 private:
  // A chunk that was sent and not yet answered: its call, and the memory that its message borrows.
  struct Sent {
    RopeCall call;
    Payload payload;
    Loan loan;
  };
  using Key = std::pair<int64_t, int64_t>;  // entry, first token

  void WriteAll() {
    bool open = true;
    for (size_t id = 0; open && id < entries_.size(); ++id) {
      absl::StatusOr<bool> written = WriteEntry(static_cast<int64_t>(id));
      open = written.ok() && *written;
      if (!written.ok()) {
        write_error_ = written.status();
        stream_.Cancel();
      }
    }
    stream_.WritesDone();
  }

  // Returns false if the stream has ended.
  absl::StatusOr<bool> WriteEntry(int64_t id) {
    const RopeCall& entry = entries_[static_cast<size_t>(id)];
    PHASOR_ASSIGN_OR_RETURN(const bool opened, WriteOpening(id, entry));
    if (!opened) return false;
    const int64_t tokens = TokensOf(entry);
    const int64_t step = std::max<int64_t>(1, options_.chunk_bytes / BytesPerToken(entry));
    for (int64_t first = 0; first < tokens; first += step) {
      const TokenRun run{first, std::min(step, tokens - first)};
      PHASOR_ASSIGN_OR_RETURN(const bool written, WriteRun(id, entry, run));
      if (!written) return false;
    }
    return true;
  }

  absl::StatusOr<bool> WriteOpening(int64_t id, const RopeCall& entry) {
    PHASOR_ASSIGN_OR_RETURN(RopeRequest request, ToRequest(entry, kItemPath));
    for (TensorDesc& tensor : request.tensors) tensor.strides.clear();
    v1::StreamApplyRoPERequest message;
    message.set_id(id);
    message.set_chunked(true);
    *message.mutable_item() = ToWire(request);
    Payload positions;
    positions.AddPositions(entry.positions);
    if (entry.from_positions.has_value()) positions.AddPositions(*entry.from_positions);
    return stream_.Write(message.SerializeAsString(), positions.raw, stream_.NewLoan());
  }

  absl::StatusOr<bool> WriteRun(int64_t id, const RopeCall& entry, TokenRun run) {
    const auto sent = std::make_shared<Sent>(Sent{RunOf(entry, run), {}, stream_.NewLoan()});
    for (const RopeTensor& tensor : sent->call.tensors) {
      TensorDesc desc = tensor.input.desc;
      PHASOR_RETURN_IF_ERROR(sent->payload.AddTensor(tensor.input, desc).status());
    }
    v1::StreamApplyRoPERequest message;
    message.set_id(id);
    message.mutable_chunk()->set_first_token(run.first);
    message.mutable_chunk()->set_tokens(run.tokens);
    {
      std::lock_guard lock(mutex_);
      sent_.emplace(Key{id, run.first}, sent);
    }
    return stream_.Write(message.SerializeAsString(), sent->payload.raw, sent->loan);
  }

  // Reads until the results of all tokens have arrived, or until the first error.
  absl::Status ReadAll() {
    int64_t done = 0;
    while (done < all_tokens_) {
      grpc::ByteBuffer bytes;
      if (!stream_.Read(&bytes)) {
        ended_ = true;
        return Unfit("the stream has ended before the last answer");
      }
      PHASOR_ASSIGN_OR_RETURN(const ReceivedMessage message, ReadRawMessage(bytes));
      PHASOR_ASSIGN_OR_RETURN(const int64_t tokens, ReadAnswer(message));
      done += tokens;
      if (tokens > 0 && options_.progress) options_.progress(done, all_tokens_);
    }
    return absl::OkStatus();
  }

  // Returns how many tokens the answer holds.
  absl::StatusOr<int64_t> ReadAnswer(const WalkedMessage& message) {
    v1::StreamApplyRoPEResponse response;
    if (!response.ParseFromString(message.header)) return Unfit("cannot be parsed");
    if (!response.has_chunk()) {  // the answer to the item's opening
      static const auto* const nothing = new RopeCall;
      response.mutable_result()->clear_tensors();
      PHASOR_ASSIGN_OR_RETURN(info_, ReadResult(response.result(), message, *nothing, 0));
      return 0;
    }
    const Key key{response.id(), response.chunk().first_token()};
    const std::shared_ptr<Sent> sent = Find(key);
    if (sent == nullptr)
      return Unfit("id ", key.first, " token ", key.second,
                   " was not asked for; is the server of another version?");
    if (!stream_.WaitForReturn(sent->loan))
      return Unfit("id ", key.first, " token ", key.second, " was answered before it was sent");
    Forget(key);
    PHASOR_ASSIGN_OR_RETURN(info_, ReadResult(response.result(), message, sent->call, 0));
    return TokensOf(sent->call);
  }

  std::shared_ptr<Sent> Find(Key key) {
    std::lock_guard lock(mutex_);
    const auto found = sent_.find(key);
    return found == sent_.end() ? nullptr : found->second;
  }
  void Forget(Key key) {
    std::lock_guard lock(mutex_);
    sent_.erase(key);
  }

  const std::vector<RopeCall>& entries_;
  const ChunkOptions& options_;
  int64_t all_tokens_ = 0;
  RunInfo info_;
  bool ended_ = false;        // the server or the connection ended the stream
  absl::Status write_error_;  // read after the writer was joined
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Sent>> sent_ ABSL_GUARDED_BY(mutex_);
  std::thread writer_;
  RawStream stream_;  // destroyed first: it waits for memory that it borrowed
};

}  // namespace

absl::StatusOr<RunInfo> RopeInChunks(const std::shared_ptr<grpc::Channel>& channel,
                                     const std::vector<RopeCall>& entries,
                                     const ChunkOptions& options, const CallContext& context) {
  return ChunkedRope(channel, entries, options, context).Run();
}

}  // namespace phasor::client_internal
