// SPDX-License-Identifier: Apache-2.0
// A header and output bytes, joined as the generated parser reads them.
#include "server/grpc/message_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/raw_message.h"

namespace phasor::rpc {
namespace {

TEST(MessageWriterTest, LargeOutputsAreBorrowedAndSmallOnesCopied) {
  engine::BufferPool pool(0);
  const engine::BufferRef buffer = pool.Get(1 << 16);
  std::memset(buffer->data(), 'x', 1 << 16);
  const engine::OutputRange outputs[] = {{0, 8}, {64, 10000}, {0, 0}};
  const grpc::ByteBuffer message = WriteMessage("", kRawField, outputs, buffer);
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
