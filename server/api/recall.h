// SPDX-License-Identifier: Apache-2.0
// Views of messages whose items are like ones that were checked a moment ago: without parsing them.
#ifndef PHASOR_SERVER_API_RECALL_H_
#define PHASOR_SERVER_API_RECALL_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "proto/convert.h"
#include "proto/raw_message.h"
#include "server/api/request_memo.h"
#include "server/api/request_view.h"
#include "server/api/shared_tensors.h"

namespace phasor::rpc {

using SerializedItems = absl::InlinedVector<std::string_view, 4>;

// The items of a unary call or a batch. Empty: the message has other fields too, or is not in the
// form that clients write. Views of `header`.
SerializedItems ItemsOf(std::string_view header);

// The id and the item of a message of a stream.
struct StreamedItem {
  int64_t id = 0;
  std::string_view item;
};
// nullopt: the message has other fields too, or is not in the form that clients write.
std::optional<StreamedItem> StreamedItemOf(std::string_view header);

// The view of a message with these items. nullopt: an item is not remembered, or something is
// wrong; the caller then parses the message. Never gives another view than that would. `sources`:
// where tensors may be; kShared only for the item of a message that has one.
std::optional<RequestView> RecallItems(ItemKind kind, absl::Span<const std::string_view> items,
                                       absl::Span<const PieceList> raw, Sources sources,
                                       const ViewContext& context);

// Remembers what checking the serialized `item` gave. The item must not name an encoder, which the
// configuration may change. `inline_tensors`: those of the item that lie in its message. `shared`:
// the others; none if the item is one of a batch.
void RememberItem(std::string_view item, int inline_tensors, const engine::Item& checked,
                  SharedTensors shared, const ViewContext& context);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_RECALL_H_
