// SPDX-License-Identifier: Apache-2.0
// A server that remembers requests, and all that the view of a message says, as text.
#ifndef PHASOR_TESTS_SERVER_API_REMEMBERING_H_
#define PHASOR_TESTS_SERVER_API_REMEMBERING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/protobuf_log.h"
#include "server/api/recall.h"
#include "server/api/stream_view.h"

namespace phasor::rpc {

// All that a view says of the items of its message, as text; of an error, its code and message.
// `part`: of an item of several parts.
inline std::string ViewText(const Prepared& prepared, int64_t part, int64_t parts) {
  const auto* const encode = std::get_if<PreparedEncode>(&prepared);
  const PositionSource& source =
      encode != nullptr ? encode->positions : std::get<PreparedRope>(prepared).positions;
  std::string text = absl::StrCat(FingerprintOf(prepared), " positions ", source.tokens / parts,
                                  " x ", source.batch, " x ", source.axes);
  const int64_t read = source.kind == PositionSource::Kind::kTensor ? 0 : source.count() / parts;
  std::vector<Position> positions(static_cast<size_t>(read * source.axes));
  ReadPositions(source, part * read, read, positions.data());
  for (const Position& p : positions) absl::StrAppend(&text, " ", p.whole, "+", p.fraction);
  if (encode != nullptr) absl::StrAppend(&text, " scale ", encode->embedding_scale);
  return text;
}

inline absl::Hex AddressOf(const std::byte* data) {
  return absl::Hex(reinterpret_cast<uintptr_t>(data));
}

// Where an output goes, if that is not the answer.
inline std::string PlaceText(const engine::Destination& place) {
  if (place.region.empty()) return "";
  return absl::StrCat(" to ", AddressOf(place.data), " ", place.region, " ", place.offset_bytes,
                      " ", place.strided, place.on_device, place.copied, place.dirty != nullptr);
}

inline std::string ViewText(const engine::Item& item, int64_t part) {
  if (!item.status.ok()) return item.status.ToString();
  const auto parts = static_cast<int64_t>(item.parts);
  std::string text = ViewText(item.prepared, part, parts);
  for (const engine::Input& input : item.inputs) {
    absl::StrAppend(&text, "\n in ", static_cast<int>(input.slot.role), " ", input.slot.index, " ",
                    static_cast<int>(input.slot.reading), " ", input.slot.bytes, ": ");
    for (const auto& piece : input.bytes) {
      if (input.changing) {  // shared, maybe on a device
        absl::StrAppend(&text, "shared at ", AddressOf(piece.data()));
        continue;
      }
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
  }
  for (size_t i = 0; i < item.outputs.size(); ++i) {
    const ShapedType tensor = OutputOf(item.prepared, i);
    absl::StrAppend(&text, "\n out ", static_cast<int>(tensor.dtype), " [", tensor.shape[0] / parts,
                    ", ", absl::StrJoin(tensor.shape.subspan(1), ", "), "] ",
                    item.outputs[i].slot.bytes / parts, PlaceText(item.outputs[i].place));
  }
  return text;
}

inline std::string ViewText(const absl::StatusOr<RequestView>& view) {
  if (!view.ok()) return view.status().ToString();
  std::string text = absl::StrCat(view->response_bytes, " ", view->copied_bytes, " ",
                                  view->bound.shared_bytes, " held ", view->bound.held.size());
  for (const engine::Item& item : view->items) {
    for (size_t part = 0; part < item.parts; ++part) {
      absl::StrAppend(&text, "\n", ViewText(item, static_cast<int64_t>(part)));
    }
  }
  return text;
}

using ViewParser =
    std::function<absl::StatusOr<RequestView>(const WalkedMessage&, const ViewContext&)>;

// A message of a stream as a view, with its id as the first item of the text.
template <typename F>
ViewParser Streamed(F parse) {
  return [parse](const WalkedMessage& walked, const ViewContext& context) {
    absl::StatusOr<StreamRequest> request = parse(walked, context);
    absl::StatusOr<RequestView> view = absl::UnknownError("neither an item nor an error");
    if (!request.ok()) return absl::StatusOr<RequestView>(request.status());
    if (const auto* status = std::get_if<absl::Status>(&request->content)) view = *status;
    if (auto* known = std::get_if<RequestView>(&request->content)) view = std::move(*known);
    if (view.ok()) view->copied_bytes += request->id;
    return view;
  };
}

// A server that remembers.
class Remembering {
 public:
  explicit Remembering(memory::CallerMemory memory = {}) : memory_(std::move(memory)) {
    SilenceProtobufLog();
  }

  // The text of the view.
  std::string Read(const ViewParser& parse, const std::string& bytes) {
    return Read(parse, bytes, &memo_);
  }
  // The same of a server that remembers nothing.
  std::string Anew(const ViewParser& parse, const std::string& bytes) {
    return Read(parse, bytes, nullptr);
  }
  // How many items of the last message were remembered.
  int64_t recalled() const { return recalled_; }
  // How many of them became each item of the engine.
  const std::vector<size_t>& parts() const { return parts_; }

  int64_t max_message_bytes = 1 << 20;
  EncoderCatalogue encoders;

 private:
  std::string Read(const ViewParser& parse, const std::string& bytes, RequestMemo* memo) {
    const absl::Span<const std::byte> piece(reinterpret_cast<const std::byte*>(bytes.data()),
                                            bytes.size());
    const auto walked = WalkMessage({piece}, {});
    if (!walked.ok()) return walked.status().ToString();
    const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
    ViewContext context{plans, "cpu", max_message_bytes, 8};
    context.encoders = &encoders;
    context.memo = memo;
    context.memory = memory_;
    const absl::StatusOr<RequestView> view = parse(*walked, context);
    recalled_ = view.ok() ? view->recalled_items : 0;
    parts_.clear();
    if (view.ok()) {
      for (const engine::Item& item : view->items) parts_.push_back(item.parts);
    }
    return ViewText(view);
  }

  const memory::CallerMemory memory_;
  RequestMemo memo_;
  int64_t recalled_ = 0;
  std::vector<size_t> parts_;
};

// A message of each kind, and how it is read.
struct KnownMessage {
  ViewParser parse;
  std::string bytes;
};

// A repeated message is recalled, and means the same.
inline void ExpectRecalled(const KnownMessage& message, const memory::CallerMemory& memory) {
  Remembering server(memory);
  const std::string first = server.Read(message.parse, message.bytes);
  EXPECT_EQ(server.recalled(), 0);
  EXPECT_EQ(server.Read(message.parse, message.bytes), first);
  EXPECT_GT(server.recalled(), 0) << first;
  EXPECT_EQ(server.Anew(message.parse, message.bytes), first);
}

// A field is changed, removed, added or repeated at random: mostly near the message that was
// recalled, so that the cut at the positions and the comparison are what is tried.
inline void ExpectTheSameHoweverChanged(const std::vector<KnownMessage>& messages,
                                        const memory::CallerMemory& memory) {
  std::mt19937_64 random(24);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int64_t recalled = 0, parsed = 0;
  for (const KnownMessage& message : messages) {
    Remembering server(memory);
    for (int round = 0; round < 3000; ++round) {
      server.Read(message.parse, message.bytes);
      std::string bytes = message.bytes;
      for (size_t changes = 1 + below(2); changes > 0; --changes) {
        const size_t at = below(bytes.size());
        const size_t length = std::min<size_t>(1 + below(12), bytes.size() - at);
        switch (below(4)) {
          case 0:
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
            break;
          case 1:
            bytes.erase(at, length);
            break;
          case 2:
            bytes.insert(below(bytes.size()), bytes.substr(at, length));
            break;
          default:
            bytes[at] = static_cast<char>(random());
        }
        if (bytes.empty()) bytes = message.bytes;
      }
      const std::string text = server.Read(message.parse, bytes);
      recalled += server.recalled();
      parsed += server.recalled() == 0;
      ASSERT_EQ(text, server.Anew(message.parse, bytes)) << ::testing::PrintToString(bytes);
    }
  }
  EXPECT_GT(recalled, 1000);
  EXPECT_GT(parsed, 1000);
}

}  // namespace phasor::rpc

#endif  // PHASOR_TESTS_SERVER_API_REMEMBERING_H_
