// SPDX-License-Identifier: Apache-2.0
// Large tensors in ordinary memory, copied to memory that a server of this host maps: a copy each
// way instead of the wire. docs/adr/0018-large-calls-are-staged-on-one-host.md says when it pays.
#ifndef PHASOR_CLIENT_SHARED_STAGING_H_
#define PHASOR_CLIENT_SHARED_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/connection.h"
#include "client/shared/lease_client.h"

namespace phasor::client_internal {

// Smaller tensors travel: what is measured at this size gains, below it noise decides.
inline constexpr int64_t kMinStagedBytes = 256 << 10;

// Leased memory that is used again. Threads: any. Blocks keep it.
class StagingPool : public std::enable_shared_from_this<StagingPool> {
 public:
  // Asks the server where its lease socket is, without waiting.
  using AskServer = std::function<void(Done<ServerInfo>)>;

  // At most `max_bytes` at a time, what is in use and what waits for use.
  StagingPool(std::shared_ptr<LeaseHolder> leases, int64_t max_bytes)
      : leases_(std::move(leases)), max_bytes_(max_bytes) {}

  // Memory of one call. Given back to the system unless it may be used again.
  class Block {
   public:
    Block(std::shared_ptr<StagingPool> pool, SharedMemory memory, LeaseClient* of)
        : pool_(std::move(pool)), memory_(std::move(memory)), of_(of) {}
    ~Block() { pool_->GiveBack(std::move(memory_), of_, reuse_); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    std::byte* data() const { return memory_.data(); }
    // The server has answered and writes here no more.
    void Reuse() { reuse_ = true; }

   private:
    const std::shared_ptr<StagingPool> pool_;
    SharedMemory memory_;
    LeaseClient* const of_;  // which `memory_` keeps
    bool reuse_ = false;
  };

  // nullptr: there is none at the moment; then it may `ask`, for later calls.
  std::unique_ptr<Block> Take(int64_t bytes, const AskServer& ask);

  // Whether it is leased already.
  bool IsLeased(const TensorView& tensor) const;

 private:
  using Free = std::multimap<int64_t, SharedMemory>;  // by size

  void Ask(const AskServer& ask);
  // What waits for use, which counts no more. With the lock.
  Free TakeFree();
  // That, given back to the system: a server that ended knows none of it.
  void DropFree();
  void GiveBack(SharedMemory memory, LeaseClient* of, bool reuse);
  // Gives up the room of what was not leased after all, and waits before the next attempt: memory
  // that is made to be refused costs time.
  void Forget(int64_t bytes);

  const std::shared_ptr<LeaseHolder> leases_;
  const int64_t max_bytes_;
  std::mutex mutex_;  // all below
  absl::Time ask_after_ = absl::InfinitePast();
  absl::Time lease_after_ = absl::InfinitePast();
  std::shared_ptr<LeaseClient> of_;  // of `free_`
  Free free_;
  int64_t bytes_ = 0;  // of all blocks
};

// A call whose large tensors lie in a block.
template <typename Call>
struct StagedCall {
  Call call;
  struct Output {
    const std::byte* dense;
    MutableTensorView to;
  };
  std::vector<Output> outputs;
  std::unique_ptr<StagingPool::Block> block;

  // After success: copies the outputs to where the caller wants them.
  void Finish();
};

// nullptr: `call` is to be made as it is: too small, not valid, its output shared already, it has a
// paged cache, or there is no block. Reads the call's memory, and writes none of it.
std::unique_ptr<StagedCall<RopeCall>> Stage(const RopeCall& call, StagingPool& pool,
                                            const StagingPool::AskServer& ask);
// Calls that name their output only.
std::unique_ptr<StagedCall<EncodeCall>> Stage(const EncodeCall& call, StagingPool& pool,
                                              const StagingPool::AskServer& ask);

// Whether a staged call that failed so is to be made again, inline. The caller's memory is as it
// was; the error of an inline call is the one it wants.
bool MayTravel(const absl::Status& status);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_SHARED_STAGING_H_
