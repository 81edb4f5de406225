// SPDX-License-Identifier: Apache-2.0
#include "proto/field_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "phasor/v1/position_embedding_service.pb.h"

namespace phasor {
namespace {

TEST(FieldWriterTest, WritesWhatProtobufWrites) {
  for (const size_t room : {0, 20, 100000}) {
    for (const size_t bytes : {0, 3, 100, 118, 119, 120, 121, 127, 128, 200, 20000}) {
      v1::RegionRef region;
      region.set_region(std::string(bytes, 'r'));
      region.set_offset_bytes(int64_t{1} << 40);
      v1::TensorSpec tensor;
      tensor.set_dtype(v1::DTYPE_BFLOAT16);
      for (const int64_t extent : {1, 127, 128, 1 << 20}) tensor.add_shape(extent);
      *tensor.mutable_region() = region;
      FieldWriter out(room);
      out.Varint(1, v1::DTYPE_BFLOAT16);
      out.Message(2, [&] {
        for (const int64_t extent : tensor.shape()) out.Number(static_cast<uint64_t>(extent));
      });
      out.Message(4, [&] {
        if (bytes > 0) out.Bytes(1, region.region());
        out.Varint(2, static_cast<uint64_t>(region.offset_bytes()));
      });
      EXPECT_EQ(std::move(out).Finish(), tensor.SerializeAsString()) << room << " " << bytes;
    }
  }
}

TEST(FieldWriterTest, WritesEveryVarint) {
  for (int bit = 0; bit < 64; ++bit) {
    for (const uint64_t value :
         {(uint64_t{1} << bit) - 1, uint64_t{1} << bit, ~uint64_t{0} << bit}) {
      v1::RegionRef region;
      region.set_offset_bytes(static_cast<int64_t>(value));
      FieldWriter out(0);
      if (value != 0) out.Varint(2, value);
      EXPECT_EQ(std::move(out).Finish(), region.SerializeAsString()) << value;
    }
  }
}

TEST(FieldWriterTest, RepeatsWhatItWroteLast) {
  v1::ListPresetsResponse presets;
  FieldWriter out(0);
  for (int i = 0; i < 100; ++i) {
    presets.add_presets()->set_name("name");
    const size_t before = out.size();
    i == 0 ? out.Message(1, [&] { out.Bytes(1, "name"); }) : out.Repeat(before / i);
    EXPECT_EQ(out.size(), presets.ByteSizeLong());
  }
  EXPECT_EQ(std::move(out).Finish(), presets.SerializeAsString());
}

TEST(FieldWriterTest, GoesOnAfterABegunMessage) {
  v1::RegionRef region;
  region.set_region("r");
  region.set_offset_bytes(7);
  FieldWriter begun(0);
  begun.Bytes(1, "r");
  FieldWriter out(1, std::move(begun).Finish());
  v1::RegionRef rest;
  rest.set_offset_bytes(7);
  out.Append(rest.SerializeAsString());
  out.Append("");
  EXPECT_EQ(std::move(out).Finish(), region.SerializeAsString());
}

}  // namespace
}  // namespace phasor
