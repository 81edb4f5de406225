// SPDX-License-Identifier: Apache-2.0
// Serializes benchmark cases without copying their tensors, and compares answers with the
// reference.
#include "bench/server/messages.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/slice.h>

#include <numeric>
#include <string>

#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert.h"
#include "proto/raw_message.h"

namespace phasor::bench {
namespace {

grpc::ByteBuffer ToByteBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

template <typename Message>
Message Parse(grpc::ByteBuffer bytes, int tensors = 1) {
  Message message;
  if (!grpc::SerializationTraits<Message>::Deserialize(&bytes, &message).ok()) {
    Die("the answer does not parse");
  }
  if (message.raw_size() != tensors) Die("the answer has another number of tensors");
  return message;
}

const std::byte* Bytes(const std::string& raw, int64_t size) {
  if (static_cast<int64_t>(raw.size()) != size) Die("the answer has the wrong size");
  return reinterpret_cast<const std::byte*>(raw.data());
}

// Item `i` of a batch, whose positions are its own.
EncodeCase BatchItem(EncodeCase test_case, int i) {
  test_case.first += 1009 * i;
  return test_case;
}

}  // namespace

grpc::ByteBuffer EncodeMessage(const EncodeCase& test_case) {
  v1::EncodeRequest message;
  *message.mutable_item() = ToWire(RequestOf(test_case));
  return ToByteBuffer(message.SerializeAsString());
}

grpc::ByteBuffer StreamEncodeMessage(const EncodeCase& test_case) {
  v1::StreamEncodeRequest message;
  message.set_id(1);
  *message.mutable_item() = ToWire(RequestOf(test_case));
  return ToByteBuffer(message.SerializeAsString());
}

grpc::ByteBuffer BatchEncodeMessage(const EncodeCase& test_case, int items) {
  v1::BatchEncodeRequest message;
  for (int i = 0; i < items; ++i) *message.add_items() = ToWire(RequestOf(BatchItem(test_case, i)));
  return ToByteBuffer(message.SerializeAsString());
}

RopeCase RopeOf(int64_t payload_bytes) {
  RopeCase test_case{.k_heads = 0};
  const int64_t token_bytes = test_case.q_heads * test_case.head_dim * SizeOf(test_case.dtype);
  test_case.positions.resize(static_cast<size_t>(payload_bytes / token_bytes));
  std::iota(test_case.positions.begin(), test_case.positions.end(), 0);
  return test_case;
}

grpc::ByteBuffer RopeMessage(const RopeCase& test_case, const Memory& x) {
  RopeRequest request = RequestOf(test_case);
  request.positions = AxisRange(IntegerRange{.count = test_case.tokens()});
  v1::ApplyRoPERequest message;
  *message.mutable_item() = ToWire(request);
  std::string header = message.SerializeAsString();
  AppendFieldPrefix(kRawField, static_cast<size_t>(x.size()), &header);
  const grpc::Slice slices[] = {
      grpc::Slice(header),
      grpc::Slice(x.data(), static_cast<size_t>(x.size()), grpc::Slice::STATIC_SLICE)};
  return grpc::ByteBuffer(slices, 2);
}

void CheckEncodeAnswer(const EncodeCase& test_case, grpc::ByteBuffer answer) {
  const auto message = Parse<v1::EncodeResponse>(std::move(answer));
  CheckEncode(test_case, Bytes(message.raw(0), test_case.bytes()), false);
}

void CheckStreamEncodeAnswer(const EncodeCase& test_case, grpc::ByteBuffer answer) {
  const auto message = Parse<v1::StreamEncodeResponse>(std::move(answer));
  CheckEncode(test_case, Bytes(message.raw(0), test_case.bytes()), false);
}

void CheckBatchEncodeAnswer(const EncodeCase& test_case, int items, grpc::ByteBuffer answer) {
  const auto message = Parse<v1::BatchEncodeResponse>(std::move(answer), items);
  for (int i = 0; i < items; ++i) {
    CheckEncode(BatchItem(test_case, i), Bytes(message.raw(i), test_case.bytes()), false);
  }
}

void CheckRopeAnswer(const RopeCase& test_case, const Memory& x, grpc::ByteBuffer answer,
                     bool sample) {
  const auto message = Parse<v1::ApplyRoPEResponse>(std::move(answer));
  CheckRope(test_case, x.data(), Bytes(message.raw(0), test_case.bytes()), sample);
}

}  // namespace phasor::bench
