// SPDX-License-Identifier: Apache-2.0
// OpenItems: the chunked items of a stream whose runs have not all come.
#ifndef PHASOR_SERVER_API_OPEN_ITEMS_H_
#define PHASOR_SERVER_API_OPEN_ITEMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/base/invalid.h"
#include "server/api/chunked_item.h"
#include "server/api/request_view.h"

namespace phasor::rpc {

// Most chunked items that are open in a stream at a time.
inline constexpr int64_t kMaxChunkedItems = 64;

// Threads: one at a time.
class OpenItems {
 public:
  bool empty() const { return items_.empty(); }
  void Clear() { items_.clear(); }

  // INVALID_ARGUMENT: the id is open already. RESOURCE_EXHAUSTED: too many are open.
  absl::Status CheckNew(int64_t id) const {
    if (items_.count(id) > 0) {
      return Invalid("id: ", id, " is open already; must be another until its end");
    }
    if (static_cast<int64_t>(items_.size()) >= kMaxChunkedItems) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "item: too many chunked items at a time; must be at most ", kMaxChunkedItems));
    }
    return absl::OkStatus();
  }

  // After CheckNew. An item without tokens needs no runs and does not open.
  void Open(int64_t id, std::shared_ptr<const ChunkedItem> item) {
    if (item->tokens() > 0) items_.emplace(id, Item{std::move(item)});
  }

  // The next run of an item, with ChunkedItem::Cut's errors; INVALID_ARGUMENT also: the id is not
  // open. The item, which `of` receives, is closed after its last run and after an error.
  absl::StatusOr<RequestView> Cut(int64_t id, const v1::Chunk& chunk,
                                  absl::Span<const PieceList> raw, int64_t max_message_bytes,
                                  std::shared_ptr<const ChunkedItem>* of) {
    const auto found = items_.find(id);
    if (found == items_.end()) {
      return Invalid("id: ", id, " is not open; must be that of a chunked item before its end");
    }
    Item& open = found->second;
    *of = open.item;
    absl::StatusOr<RequestView> view =
        open.item->Cut(chunk, open.next_token, raw, max_message_bytes);
    if (view.ok()) open.next_token += chunk.tokens();
    if (!view.ok() || open.next_token == open.item->tokens()) items_.erase(found);
    return view;
  }

  // Closes `item` if it is still open, so that later runs with its id are refused.
  void Close(int64_t id, const ChunkedItem* item) {
    const auto open = items_.find(id);
    if (open != items_.end() && open->second.item.get() == item) items_.erase(open);
  }

 private:
  struct Item {
    std::shared_ptr<const ChunkedItem> item;
    int64_t next_token = 0;  // at which its next run must begin
  };
  std::map<int64_t, Item> items_;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_OPEN_ITEMS_H_
