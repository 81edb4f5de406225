// SPDX-License-Identifier: Apache-2.0
// make_fuzz_corpus tests/fuzz/corpus: writes the seed corpus. Run it when the wire gets a field
// that seeds should have, and commit the result.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert_move.h"
#include "tests/fuzz/check_infer.h"
#include "tests/fuzz/mutator.h"
#include "tests/server/oip/requests.h"
#include "tests/support/requests.h"

namespace phasor::fuzz {
namespace {

using oip::AddInput;
using oip::EncodeAt;
using oip::RotateAt;
using oip::SetRegion;
using ::phasor::testing::EncodeOf;
using ::phasor::testing::RopeOf;
using ::phasor::testing::SetShape;

enum Method : uint8_t {
  kEncode,
  kApplyRoPE,
  kBatchEncode,
  kBatchApplyRoPE,
  kInfer,
  kMoveKeys,
  kBatchMoveKeys
};

class Writer {
 public:
  explicit Writer(std::string folder) : folder_(std::move(folder)) {}

  void Write(const std::string& name, Method method, std::string message, uint8_t cut = 0) {
    std::ofstream file(folder_ + "/" + name + ".bin", std::ios::binary);
    file << static_cast<char>(method) << static_cast<char>(cut) << message;
    failed_ = failed_ || !file.good();
  }
  void Write(const std::string& name, const v1::EncodeItem& item, uint8_t cut = 0) {
    v1::EncodeRequest request;
    *request.mutable_item() = item;
    RepairRaw(&request);
    Write(name, kEncode, request.SerializeAsString(), cut);
  }
  void Write(const std::string& name, const v1::ApplyRoPEItem& item, uint8_t cut = 0) {
    v1::ApplyRoPERequest request;
    *request.mutable_item() = item;
    RepairRaw(&request);
    Write(name, kApplyRoPE, request.SerializeAsString(), cut);
  }
  bool failed() const { return failed_; }

 private:
  const std::string folder_;
  bool failed_ = false;
};

void WriteEncodes(Writer& writer) {
  writer.Write("encode_range", EncodeOf(5));
  writer.Write("encode_nothing", EncodeOf(0), 1);

  v1::EncodeItem real = EncodeOf(0);
  auto* range = real.mutable_positions()->mutable_range()->mutable_real();
  range->set_start(0.25);
  range->set_step(-0.125);
  range->set_count(7);
  real.mutable_spec()->set_preset("flow-periods");
  real.set_output_dtype(v1::DTYPE_FLOAT64);
  writer.Write("encode_real_range", real, 3);

  v1::EncodeItem tensor = EncodeOf(0);
  SetShape(tensor.mutable_positions()->mutable_tensor(), v1::DTYPE_FLOAT32, {2, 3});
  tensor.set_output_dtype(v1::DTYPE_FLOAT16);
  tensor.mutable_pins()->set_backend("cpu");
  tensor.mutable_pins()->set_numerics_version(1);
  writer.Write("encode_tensor", tensor, 2);

  v1::EncodeItem ragged = EncodeOf(0);
  for (const int64_t length : {3, 0, 2}) {
    ragged.mutable_positions()->mutable_ragged()->add_lengths(length);
    ragged.mutable_positions()->mutable_ragged()->add_offsets(10 * length);
  }
  writer.Write("encode_ragged", ragged);

  v1::EncodeItem grid = EncodeOf(0);
  grid.mutable_spec()->set_preset("grid-2d-concat");
  grid.mutable_spec()->set_dim(16);
  for (const int64_t count : {3, 4}) {
    grid.mutable_positions()->mutable_grid()->add_axes()->mutable_integer()->set_count(count);
  }
  grid.set_output_dtype(v1::DTYPE_BFLOAT16);
  writer.Write("encode_grid", grid);

  v1::EncodeItem add = EncodeOf(4);
  SetShape(add.mutable_add_to(), v1::DTYPE_FLOAT32, {4, 8});
  add.mutable_add_to()->add_strides(12);
  add.mutable_add_to()->add_strides(1);
  add.set_embedding_scale(2.0);
  writer.Write("encode_add_strided", add, 7);

  v1::EncodeItem full = EncodeOf(3);
  v1::Spec* spec = full.mutable_spec();
  spec->clear_base();
  spec->set_kind(v1::SPEC_KIND_ENCODING);
  spec->set_family(v1::FREQUENCY_FAMILY_GEOMETRIC);
  spec->set_rope_theta(10000);
  spec->set_order(v1::TRIG_ORDER_COS_SIN);
  spec->set_arrangement(v1::ARRANGEMENT_CONCATENATED);
  spec->set_position_scale(1000);
  spec->set_downscale_freq_shift(1);
  writer.Write("encode_full_spec", full);
}

void WriteRopes(Writer& writer) {
  writer.Write("rope_range", RopeOf(3), 9);
  writer.Write("rope_nothing", RopeOf(0));

  v1::ApplyRoPEItem heads = RopeOf(4);
  heads.set_layout(v1::ROPE_LAYOUT_HEADS_TOKENS);
  heads.mutable_spec()->set_preset("rope-interleaved");
  SetShape(heads.mutable_tensors(0)->mutable_tensor(), v1::DTYPE_BFLOAT16, {2, 3, 4, 8});
  SetShape(heads.mutable_tensors(1)->mutable_tensor(), v1::DTYPE_FLOAT16, {2, 1, 4, 8});
  writer.Write("rope_heads_tokens", heads, 1);

  v1::ApplyRoPEItem delta = RopeOf(4);
  delta.set_direction(v1::DIRECTION_DELTA);
  SetShape(delta.mutable_positions()->mutable_tensor(), v1::DTYPE_INT32, {4});
  SetShape(delta.mutable_from_positions()->mutable_tensor(), v1::DTYPE_INT64, {4});
  *delta.mutable_from_spec() = delta.spec();
  delta.mutable_from_spec()->set_rope_theta(500000);
  writer.Write("rope_delta", delta, 5);

  v1::ApplyRoPEItem strided = RopeOf(3);
  strided.set_direction(v1::DIRECTION_INVERSE);
  for (const int64_t stride : {48, 16, 1}) {
    strided.mutable_tensors(0)->mutable_tensor()->add_strides(stride);
  }
  strided.mutable_spec()->set_rotary_dim(4);
  strided.mutable_spec()->set_rotary_begin(2);
  SetShape(strided.mutable_tensors(1)->mutable_tensor(), v1::DTYPE_FLOAT64, {3, 1, 8});
  writer.Write("rope_strided_partial", strided);

  // 2 tokens of bfloat16 into 3 pages of 2 slots, the keys' FLOAT8.
  v1::ApplyRoPEItem paged = RopeOf(2);
  for (int i = 0; i < 2; ++i) {
    SetShape(paged.mutable_tensors(i)->mutable_tensor(), v1::DTYPE_BFLOAT16, {2, 1, 8});
  }
  paged.mutable_tensors(0)->set_output_dtype(v1::DTYPE_FLOAT8_E5M2);
  paged.mutable_tensors(0)->set_inv_scale(0.5f);
  v1::PagedCacheWrite& cache = *paged.mutable_paged_cache();
  cache.set_key_index(1);
  SetShape(cache.mutable_values(), v1::DTYPE_BFLOAT16, {2, 1, 8});
  SetShape(cache.mutable_key_cache(), v1::DTYPE_FLOAT8_E4M3, {3, 2, 1, 8});
  SetShape(cache.mutable_value_cache(), v1::DTYPE_BFLOAT16, {3, 2, 1, 8});
  SetShape(cache.mutable_slot_mapping(), v1::DTYPE_INT64, {2});
  writer.Write("rope_paged", paged);

  v1::ApplyRoPEItem unbuilt = RopeOf(2);
  unbuilt.mutable_paged_cache()->mutable_values();
  unbuilt.mutable_tensors(0)->mutable_destination()->mutable_region()->set_region("r");
  unbuilt.mutable_spec()->mutable_rope_scaling()->mutable_yarn()->set_factor(4);
  writer.Write("rope_not_built", unbuilt);

  // Tokens without bytes: a batch of none.
  v1::ApplyRoPEItem empty_batch = RopeOf(0);
  for (int i = 0; i < 2; ++i) {
    SetShape(empty_batch.mutable_tensors(i)->mutable_tensor(), v1::DTYPE_FLOAT32,
             {0, int64_t{1} << 40, 1, 8});
  }
  empty_batch.mutable_positions()->mutable_range()->mutable_integer()->set_count(int64_t{1} << 40);
  writer.Write("rope_batch_of_none", empty_batch);
}

// Every rule that a spec can name, over heads of 8 lanes.
void WriteRotarySpecs(Writer& writer) {
  const auto rope = [](auto&& change) {
    v1::ApplyRoPEItem item = RopeOf(3);
    change(item.mutable_spec());
    return item;
  };
  writer.Write("rope_yarn", rope([](v1::Spec* spec) {
                 auto* yarn = spec->mutable_rope_scaling()->mutable_yarn();
                 yarn->set_factor(4);
                 yarn->set_original_max_position_embeddings(4096);
                 yarn->set_truncate(false);
               }));
  writer.Write("rope_llama3", rope([](v1::Spec* spec) {
                 auto* llama3 = spec->mutable_rope_scaling()->mutable_llama3();
                 llama3->set_factor(8);
                 llama3->set_low_freq_factor(1);
                 llama3->set_high_freq_factor(4);
                 llama3->set_original_max_position_embeddings(8192);
               }));
  writer.Write("rope_longrope", rope([](v1::Spec* spec) {
                 auto* longrope = spec->mutable_rope_scaling()->mutable_longrope();
                 for (int i = 1; i <= 4; ++i) {
                   longrope->add_short_factor(i);
                   longrope->add_long_factor(2 * i);
                 }
                 longrope->set_factor(32);
                 longrope->set_original_max_position_embeddings(4096);
                 spec->set_sequence_length(5000);
               }));
  writer.Write("rope_dynamic_ntk", rope([](v1::Spec* spec) {
                 auto* ntk = spec->mutable_rope_scaling()->mutable_ntk();
                 ntk->set_factor(2);
                 ntk->set_dynamic(true);
                 ntk->set_original_max_position_embeddings(4096);
                 spec->set_sequence_length(8192);
               }));
  writer.Write("rope_mixed_ntk", rope([](v1::Spec* spec) {
                 spec->mutable_rope_scaling()->mutable_mixed_ntk()->set_factor(2);
                 spec->mutable_rope_scaling()->mutable_mixed_ntk()->set_b(0.5);
               }));
  writer.Write("rope_xpos", rope([](v1::Spec* spec) {
                 spec->mutable_xpos()->set_center(2);
                 spec->set_live_pairs(3);
               }));
  v1::ApplyRoPEItem mrope = rope([](v1::Spec* spec) {
    spec->set_axis_rule(v1::AXIS_RULE_MROPE_INTERLEAVED);
    for (const int section : {2, 1, 1}) spec->add_mrope_section(section);
  });
  SetShape(mrope.mutable_positions()->mutable_tensor(), v1::DTYPE_INT32, {3, 3});
  writer.Write("rope_mrope", mrope);

  v1::ApplyRoPEItem dense = rope([](v1::Spec* spec) {
    spec->set_axes(2);
    spec->set_axis_rule(v1::AXIS_RULE_DENSE);
    spec->set_family(v1::FREQUENCY_FAMILY_EXPLICIT);
    spec->set_frequency_heads(2);
    for (int i = 0; i < 16; ++i) spec->add_inv_freq(0.25 * i);
  });
  SetShape(dense.mutable_positions()->mutable_tensor(), v1::DTYPE_FLOAT32, {3, 2});
  SetShape(dense.mutable_tensors(0)->mutable_tensor(), v1::DTYPE_FLOAT32, {3, 2, 8});
  SetShape(dense.mutable_tensors(1)->mutable_tensor(), v1::DTYPE_BFLOAT16, {3, 2, 8});
  writer.Write("rope_dense_heads", dense);
}

void WriteEncodingSpecs(Writer& writer) {
  const auto encode = [](auto&& change) {
    v1::EncodeItem item = EncodeOf(3);
    change(item.mutable_spec());
    return item;
  };
  writer.Write("encode_split", encode([](v1::Spec* spec) {
                 spec->set_dim(9);
                 spec->set_odd_dim(v1::ODD_DIM_SPLIT);
                 spec->set_pad_front(2);
                 spec->set_cos_bias(-1);
               }));
  writer.Write("encode_fourier", encode([](v1::Spec* spec) {
                 spec->set_dim(5);
                 spec->set_order(v1::TRIG_ORDER_COS_ONLY);
                 spec->set_family(v1::FREQUENCY_FAMILY_EXPLICIT);
                 spec->set_frequency_unit(v1::FREQUENCY_UNIT_TURNS);
                 for (int i = 0; i < 5; ++i) spec->add_inv_freq(i - 1.5);
                 for (int i = 0; i < 5; ++i) spec->add_phase(0.1 * i);
                 spec->set_attention_factor(1.5);
               }));
  v1::EncodeItem range = encode([](v1::Spec* spec) {
    spec->set_dim(12);
    spec->set_axes(3);
    spec->set_axis_rule(v1::AXIS_RULE_FREQUENCY_MAJOR);
    spec->set_family(v1::FREQUENCY_FAMILY_LOG_RANGE);
    spec->set_min_freq(0.25);
    spec->set_max_freq(64);
    for (const double scale : {1.0, 0.5, -1.0}) spec->add_axes_position_scale(scale);
  });
  SetShape(range.mutable_positions()->mutable_tensor(), v1::DTYPE_FLOAT64, {3, 3});
  writer.Write("encode_log_range", range);
}

void WriteBatches(Writer& writer) {
  v1::BatchEncodeRequest encodes;
  for (const int64_t count : {1, 0, 3}) *encodes.add_items() = EncodeOf(count);
  encodes.mutable_items(1)->mutable_spec()->set_dim(7);
  SetShape(encodes.mutable_items(2)->mutable_positions()->mutable_tensor(), v1::DTYPE_INT64, {3});
  RepairRaw(&encodes);
  writer.Write("batch_encode", kBatchEncode, encodes.SerializeAsString(), 4);

  v1::BatchApplyRoPERequest ropes;
  for (const int64_t tokens : {2, 1}) *ropes.add_items() = RopeOf(tokens);
  RepairRaw(&ropes);
  writer.Write("batch_rope", kBatchApplyRoPE, ropes.SerializeAsString(), 6);
  writer.Write("batch_nothing", kBatchEncode, "");
}

// Three tokens of two sequences in two layers.
MoveRequest MoveOf(MoveMode mode, KeyLayout layout) {
  MoveRequest request;
  request.pools = {4096, 4096};
  layout.pages = 4;
  layout.page_size = 2;
  layout.heads = 2;
  request.layouts = {std::move(layout)};
  request.specs = {{.spec = {.preset = "rope-half-split"}}};
  request.layers = {{.spec = 0}, {.place = {0, 2048}}};
  request.groups = {
      {.runs = {{.block_table = {3, 1}, .first = 1, .count = 2, .from = 7, .to = -2}},
       .slots = {.slots = {1}, .from_positions = {5}, .positions = {int64_t{1} << 40}}}};
  request.mode = mode;
  if (mode == MoveMode::kMove) return request;
  request.layers[0].to_place = KeyPlace{1, 0};
  request.layers[1].to_place = KeyPlace{1, 2048};
  request.groups[0].runs[0].to_first = 0;
  return request;
}

void WriteMoves(Writer& writer) {
  const auto write = [&](const std::string& name, const MoveRequest& move, uint8_t cut) {
    v1::MoveKeysRequest request;
    *request.mutable_item() = ToWire(move);
    RepairRaw(&request);
    writer.Write("move_" + name, kMoveKeys, request.SerializeAsString(), cut);
  };
  write("copy", MoveOf(MoveMode::kCopyOnWrite, {.name = "vllm-flash", .head_dim = 8}), 0);
  write("in_place", MoveOf(MoveMode::kMove, {.code = KeyCode::kQ8_0, .head_dim = 32}), 5);
  write("compare", MoveOf(MoveMode::kCompare, {.code = KeyCode::kFloat32, .head_dim = 8}), 2);
  write("scaled",
        MoveOf(MoveMode::kMove,
               {.code = KeyCode::kInt8, .head_dim = 8, .scales = KeyScales{1024, 16, 8, 4}}),
        9);
  // RepairRaw fills pools with bytes 0x3C, so every slot has this position: one token is left to
  // move, one is done.
  constexpr int64_t kPosition = 0x3C3C3C3C;
  MoveRequest positions = MoveOf(MoveMode::kMove, {.head_dim = 8});
  positions.groups[0].runs.clear();
  positions.groups[0].slots = {
      .slots = {1, 6}, .from_positions = {kPosition, 5}, .positions = {4, kPosition}};
  positions.groups[0].slot_positions = KeyPlace{1, 8};
  write("positions", positions, 3);

  v1::BatchMoveKeysRequest batch;
  for (const MoveMode mode : {MoveMode::kMove, MoveMode::kCompare, MoveMode::kCopyOnWrite}) {
    *batch.add_items() = ToWire(MoveOf(mode, {.head_dim = 8}));
  }
  *batch.add_items() = ToWire(positions);
  batch.mutable_items(2)->mutable_groups(0)->mutable_runs(0)->set_count(99);
  RepairRaw(&batch);
  writer.Write("batch_moves", kBatchMoveKeys, batch.SerializeAsString(), 4);
}

void WriteInfers(Writer& writer) {
  const auto write = [&](const std::string& name, inference::ModelInferRequest request,
                         uint8_t cut) {
    RepairRaw(&request);
    writer.Write("infer_" + name, kInfer, request.SerializeAsString(), cut);
  };
  write("encoding", EncodeAt({1, 2, 3}), 0);
  write("rotation", RotateAt(7), 5);

  inference::ModelInferRequest add = EncodeAt({1, 2});
  AddInput("EMBEDDINGS", "BF16", {2, 8}, &add);
  (*add.mutable_parameters())["embedding_scale"].set_double_param(2);
  (*add.mutable_parameters())["priority"].set_uint64_param(1);
  write("added", add, 2);

  inference::ModelInferRequest typed = EncodeAt({1, 2});
  typed.mutable_inputs(0)->mutable_contents()->add_int64_contents(4);
  typed.mutable_inputs(0)->mutable_contents()->add_int64_contents(-5);
  write("typed", typed, 0);

  inference::ModelInferRequest delta = RotateAt(7);
  AddInput("FROM_POSITIONS", "FP64", {1}, &delta);
  (*delta.mutable_parameters())["direction"].set_string_param("DELTA");
  (*delta.mutable_parameters())["timeout"].set_int64_param(60'000'000);
  delta.add_outputs()->set_name("K_OUT");
  delta.add_outputs()->set_name("Q_OUT");
  write("delta", delta, 9);

  inference::ModelInferRequest bias;
  bias.set_model_name("t5");
  AddInput("QUERY_POSITIONS", "INT32", {2}, &bias);
  AddInput("KEY_POSITIONS", "INT32", {3}, &bias);
  AddInput("TABLE", "FP32", {32, 2}, &bias);
  AddInput("SCORES", "FP16", {2, 2, 3}, &bias);
  write("bias", bias, 3);

  inference::ModelInferRequest shared = RotateAt(7);
  SetRegion(kRegion, 64, 8, shared.mutable_inputs(1)->mutable_parameters());
  auto* const output = shared.add_outputs();
  output->set_name("Q_OUT");
  SetRegion(kRegion, 1024, 8, output->mutable_parameters());
  write("shared", shared, 1);
}

void WriteMalformed(Writer& writer) {
  writer.Write("claims_3_gib", kApplyRoPE,
               std::string("\x7A\x80\x80\x80\x80\x0C", 6) + "0123456789");
  writer.Write("raw_as_group", kEncode, "\x7B\x7C");
  writer.Write("endless_varint", kEncode, std::string(16, '\xFF'), 1);
}

}  // namespace
}  // namespace phasor::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_fuzz_corpus FOLDER\n");
    return 2;
  }
  phasor::fuzz::Writer writer(argv[1]);
  phasor::fuzz::WriteEncodes(writer);
  phasor::fuzz::WriteRopes(writer);
  phasor::fuzz::WriteRotarySpecs(writer);
  phasor::fuzz::WriteEncodingSpecs(writer);
  phasor::fuzz::WriteBatches(writer);
  phasor::fuzz::WriteInfers(writer);
  phasor::fuzz::WriteMoves(writer);
  phasor::fuzz::WriteMalformed(writer);
  if (writer.failed()) std::fprintf(stderr, "cannot write to %s\n", argv[1]);
  return writer.failed() ? 1 : 0;
}
