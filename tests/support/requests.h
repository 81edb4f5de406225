// SPDX-License-Identifier: Apache-2.0
// Small valid requests, for tests to break.
#ifndef PHASOR_TESTS_SUPPORT_REQUESTS_H_
#define PHASOR_TESTS_SUPPORT_REQUESTS_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "phasor/v1/position_embedding_service.pb.h"

namespace phasor::testing {

inline void SetShape(v1::TensorSpec* tensor, v1::Dtype dtype,
                     std::initializer_list<int64_t> shape) {
  tensor->set_dtype(dtype);
  tensor->clear_shape();
  for (const int64_t extent : shape) tensor->add_shape(extent);
}

// `count` rows of 8 floats: 32 * count bytes.
inline v1::EncodeItem EncodeOf(int64_t count) {
  v1::EncodeItem item;
  item.mutable_spec()->set_preset("transformer");
  item.mutable_spec()->set_dim(8);
  item.mutable_positions()->mutable_range()->mutable_integer()->set_count(count);
  item.set_output_dtype(v1::DTYPE_FLOAT32);
  return item;
}

// q of 2 heads and k of 1, head_dim 8, f32: 64 * tokens and 32 * tokens bytes.
inline v1::ApplyRoPEItem RopeOf(int64_t tokens) {
  v1::ApplyRoPEItem item;
  item.mutable_spec()->set_preset("rope-half-split");
  item.mutable_spec()->set_head_dim(8);
  item.mutable_positions()->mutable_range()->mutable_integer()->set_count(tokens);
  SetShape(item.add_tensors()->mutable_tensor(), v1::DTYPE_FLOAT32, {tokens, 2, 8});
  SetShape(item.add_tensors()->mutable_tensor(), v1::DTYPE_FLOAT32, {tokens, 1, 8});
  item.set_direction(v1::DIRECTION_FORWARD);
  item.set_layout(v1::ROPE_LAYOUT_TOKENS_HEADS);
  return item;
}

inline v1::EncodeRequest EncodeRequestOf(int64_t count) {
  v1::EncodeRequest request;
  *request.mutable_item() = EncodeOf(count);
  return request;
}

inline v1::ApplyRoPERequest RopeRequestOf(int64_t tokens) {
  v1::ApplyRoPERequest request;
  *request.mutable_item() = RopeOf(tokens);
  request.add_raw(std::string(64 * tokens, 'q'));
  request.add_raw(std::string(32 * tokens, 'k'));
  return request;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_REQUESTS_H_
