// SPDX-License-Identifier: Apache-2.0
// A header and output bytes, joined as the generated parser reads them.
#include "server/grpc/message_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "phasor/v1/position_embedding_service.pb.h"
#include "server/grpc/wire_walker.h"

namespace phasor::rpc {
namespace {

TEST(MessageWriterTest, VarintsHaveTheBytesThatAreCounted) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{16383},
                               uint64_t{16384}, std::numeric_limits<uint64_t>::max()}) {
    std::string text;
    AppendVarint(value, &text);
    EXPECT_EQ(VarintBytes(value), static_cast<int64_t>(text.size())) << value;
  }
  std::string text;
  AppendVarint(300, &text);
  EXPECT_EQ(text, "\xAC\x02");
}

TEST(MessageWriterTest, LargeOutputsAreBorrowedAndSmallOnesCopied) {
  engine::BufferPool pool(0);
  const engine::BufferRef buffer = pool.Get(1 << 16);
  std::memset(buffer->data(), 'x', 1 << 16);
  MessageWriter writer("", buffer, 1 << 16);
  writer.AddRaw(kRawTag, {0, 8});
  writer.AddRaw(kRawTag, {64, 10000});
  writer.AddRaw(kRawTag, {0, 0});
  const grpc::ByteBuffer message = writer.Finish();
  EXPECT_EQ(buffer.use_count(), 2);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(message.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::EncodeResponse response;
  ASSERT_TRUE(response.ParseFromString(bytes));
  ASSERT_EQ(response.raw_size(), 3);
  EXPECT_EQ(response.raw(0), std::string(8, 'x'));
  EXPECT_EQ(response.raw(1), std::string(10000, 'x'));
  EXPECT_EQ(response.raw(2), "");
}

}  // namespace
}  // namespace phasor::rpc
