// SPDX-License-Identifier: Apache-2.0
// RequestMemo: the requests that were checked last, by the bytes of their metadata. Calls of one
// client follow one another and differ in their positions and their payload. So the next one needs
// no parsing and no checks but of those.
#ifndef PHASOR_SERVER_API_REQUEST_MEMO_H_
#define PHASOR_SERVER_API_REQUEST_MEMO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/request/prepared.h"
#include "kernels/tensor/positions.h"
#include "server/api/shared_tensors.h"

namespace phasor::rpc {

// The kinds of items that are remembered.
enum class ItemKind : uint8_t { kEncode, kRope };

// A serialized item, cut at its positions. All parts are views of it.
struct CutItem {
  std::string_view before;
  std::string_view positions;  // without tag and length
  std::string_view after;
};
// nullopt: `item` has no positions or has them twice, or is not in the form that clients write. The
// fields before and after the positions are whole, so they mean the same in that order.
std::optional<CutItem> CutPositions(std::string_view item);

// The range of integers that `positions` are. nullopt: they are of another kind, or not in the form
// that clients write.
std::optional<IntegerRange> PlainRange(std::string_view positions);

// Remembers few requests for each of its parts, and threads are dealt to the parts. A request that
// it returns is what parsing and checking would give, because all that could differ is checked here
// or is not remembered, such as learned tables. The caller must not keep requests whose meaning
// depends on more than their bytes, such as encoders of the configuration, and must look up in each
// call what shared tensors name. Threads: any.
class RequestMemo {
 public:
  static constexpr size_t kParts = 16;
  static constexpr size_t kRequestsOfPart = 4;
  // Longest item that is remembered. Its plan has at most engine::kSmallPlanBytes.
  static constexpr size_t kMaxItemBytes = 8192;

  // Gives `found` the checked request of the first item, if its bytes but for its positions are
  // those of a remembered one. Encodes that follow and differ from it only in where their range of
  // positions starts become part of that request: it then has the positions of all of them, one
  // after another. Returns the number of items in the request. 0: the first one is not remembered,
  // or positions are wrong; the caller then checks the items itself and finds what is wrong.
  // `shared`: the tensors of the first item that lie in shared memory; nullptr: there are none.
  size_t Find(ItemKind kind, absl::Span<const std::string_view> items, Prepared* found,
              std::shared_ptr<const SharedTensors>* shared);

  // Remembers what checking `item` gave, unless it is one of those that are not remembered.
  void Keep(std::string_view item, const Prepared& prepared, SharedTensors shared = {});

 private:
  struct Request {
    ItemKind kind;
    std::string fields;     // all of the item but its positions
    std::string positions;  // those of `prepared`
    bool for_any_positions = false;
    Prepared prepared;
    std::shared_ptr<const SharedTensors> shared;  // nullptr: none
  };

  class Part {
   public:
    // Gives `found` and `shared` the remembered request that is like `item`. False: there is none.
    // It has the positions of `item` if `same_positions` becomes true, otherwise others.
    bool Find(ItemKind kind, const CutItem& item, Prepared* found,
              std::shared_ptr<const SharedTensors>* shared, bool* same_positions);
    void Keep(Request request);

   private:
    absl::Mutex mu_;
    std::vector<Request> requests_ ABSL_GUARDED_BY(mu_);
    size_t oldest_ ABSL_GUARDED_BY(mu_) = 0;
  };

  Part& PartOfThread();

  std::array<Part, kParts> parts_;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_REQUEST_MEMO_H_
