// SPDX-License-Identifier: Apache-2.0
// Staging: copies large tensors in ordinary memory to memory that a server on this host maps. That
// is one copy in each direction instead of sending the bytes.
// docs/adr/0018-large-calls-are-staged-on-one-host.md says when it helps.
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

// Smaller tensors are sent. At this size staging was measurably faster; below it the difference was
// lost in noise.
inline constexpr int64_t kMinStagedBytes = 256 << 10;

// A pool of leased memory for staging. Its blocks keep it alive. Threads: any.
class StagingPool : public std::enable_shared_from_this<StagingPool> {
 public:
  // Asks the server for the path of its lease socket, without waiting for the answer.
  using AskServer = std::function<void(Done<ServerInfo>)>;

  // Holds at most `max_bytes` at a time, of blocks in use and free blocks together.
  StagingPool(std::shared_ptr<LeaseHolder> leases, int64_t max_bytes)
      : leases_(std::move(leases)), max_bytes_(max_bytes) {}

  // The staging memory of one call. Returned to the system when destroyed, unless Reuse was called.
  class Block {
   public:
    Block(std::shared_ptr<StagingPool> pool, SharedMemory memory, LeaseClient* of)
        : pool_(std::move(pool)), memory_(std::move(memory)), of_(of) {}
    ~Block() { pool_->GiveBack(std::move(memory_), of_, reuse_); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    std::byte* data() const { return memory_.data(); }
    // Says that the server has answered and no longer writes here, so the memory may be used again.
    void Reuse() { reuse_ = true; }

   private:
    const std::shared_ptr<StagingPool> pool_;
    SharedMemory memory_;
    LeaseClient* const of_;  // the client that leased `memory_`, which keeps it alive
    bool reuse_ = false;
  };

  // Takes a block of at least `bytes` bytes. nullptr if there is none at the moment, or by
  // `deadline`; it may then call `ask`, so that later calls get one.
  std::unique_ptr<Block> Take(int64_t bytes, const AskServer& ask,
                              absl::Time deadline = absl::InfiniteFuture());

  // Whether the tensor is in leased memory already.
  bool IsLeased(const TensorView& tensor) const;

 private:
  using Free = std::multimap<int64_t, SharedMemory>;  // by size

  void Ask(const AskServer& ask);
  // Removes all free blocks from the pool and its count. The caller must hold the lock.
  Free TakeFree();
  // Returns the free blocks to the system, because a server that ended knows none of them.
  void DropFree();
  void GiveBack(SharedMemory memory, LeaseClient* of, bool reuse);
  // Takes back the count of bytes for memory that could not be leased, and delays the next attempt:
  // allocating memory that is then refused costs time.
  void Forget(int64_t bytes);

  const std::shared_ptr<LeaseHolder> leases_;
  const int64_t max_bytes_;
  std::mutex mutex_;  // guards all below
  absl::Time ask_after_ = absl::InfinitePast();
  absl::Time lease_after_ = absl::InfinitePast();
  std::shared_ptr<LeaseClient> of_;  // the client that leased `free_`
  Free free_;
  int64_t bytes_ = 0;  // of all blocks
};

// A call whose large tensors were copied to a block.
template <typename Call>
struct StagedCall {
  Call call;
  struct Output {
    const std::byte* dense;
    MutableTensorView to;
  };
  std::vector<Output> outputs;
  std::unique_ptr<StagingPool::Block> block;

  // Copies the outputs to where the caller wants them. To be called after success.
  void Finish();
};

// Stages a call. nullptr if the call should be made as it is: it is too small or invalid, its
// output is already shared, it has a paged cache, or there is no block. Reads the call's memory and
// writes none of it.
std::unique_ptr<StagedCall<RopeCall>> Stage(const RopeCall& call, StagingPool& pool,
                                            const StagingPool::AskServer& ask,
                                            absl::Time deadline = absl::InfiniteFuture());
// Stages only calls that set their output.
std::unique_ptr<StagedCall<EncodeCall>> Stage(const EncodeCall& call, StagingPool& pool,
                                              const StagingPool::AskServer& ask,
                                              absl::Time deadline = absl::InfiniteFuture());

// Whether a staged call that failed with this status should be made again inline. The caller's
// memory is unchanged, and the error of the inline call is the one that the caller should see.
bool MayTravel(const absl::Status& status);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_SHARED_STAGING_H_
