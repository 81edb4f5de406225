// SPDX-License-Identifier: Apache-2.0
// The presets. docs/conventions.md gives formula, layout and a worked example of each.
#include "kernels/presets.h"

#include <algorithm>
#include <utility>

namespace phasor {
namespace {

Spec Encoding(FrequencyFamily family) {
  Spec spec;
  spec.kind = SpecKind::kEncoding;
  spec.family = family;
  return spec;
}

Spec Geometric(double theta, TrigOrder order, Arrangement arrangement) {
  Spec spec = Encoding(FrequencyFamily::kGeometric);
  spec.rope_theta = theta;
  spec.order = order;
  spec.arrangement = arrangement;
  return spec;
}

// Timestep embeddings append a zero to odd widths.
Spec Timestep(TrigOrder order, double shift) {
  Spec spec = Geometric(10000, order, Arrangement::kConcatenated);
  spec.downscale_freq_shift = shift;
  spec.pad_back = 1;
  return spec;
}

Spec Periods(FrequencyFamily family, Arrangement arrangement) {
  Spec spec = Encoding(family);
  spec.min_period = 4e-3;
  spec.max_period = 4.0;
  spec.order = TrigOrder::kSinCos;
  spec.arrangement = arrangement;
  return spec;
}

Spec Grid2d(Arrangement arrangement, AxisGrouping grouping) {
  Spec spec = Geometric(10000, TrigOrder::kSinCos, arrangement);
  spec.axes = 2;
  spec.grouping = grouping;
  return spec;
}

Spec Rotary(double theta, Pairing pairing) {
  Spec spec;
  spec.kind = SpecKind::kRotary;
  spec.family = FrequencyFamily::kGeometric;
  spec.rope_theta = theta;
  spec.pairing = pairing;
  return spec;
}

Spec Heads(double theta, Pairing pairing, int64_t head_dim) {
  Spec spec = Rotary(theta, pairing);
  spec.head_dim = head_dim;
  return spec;
}

Spec AxialHeads(double theta, std::vector<int64_t> axes_dim) {
  Spec spec = Heads(theta, Pairing::kInterleaved, 128);
  spec.axes = static_cast<int>(axes_dim.size());
  spec.axes_dim = std::move(axes_dim);
  return spec;
}

Spec Axial(int axes) {
  Spec spec = Rotary(10000, Pairing::kInterleaved);
  spec.axes = axes;
  return spec;
}

template <typename T>
Spec With(Spec spec, std::optional<T> Spec::*field, T value) {
  spec.*field = value;
  return spec;
}

std::vector<Preset> MakePresets() {
  using enum TrigOrder;
  using enum Arrangement;
  const std::vector<std::string> dim = {"dim"};
  const std::vector<std::string> head_dim = {"head_dim"};
  std::vector<Preset> presets = {
      {"big-vision-2d",
       "Image axes (column, row), frequencies down to 1/10000 inclusive: [sin x, cos x | sin y, "
       "cos y]",
       "google-research/big_vision models/vit.py posemb_sincos_2d; MoCo v3", dim,
       With(Grid2d(kConcatenated, AxisGrouping::kAxisMajor), &Spec::downscale_freq_shift, 1.0)},
      {"ddpm-timestep", "Diffusion timestep, denominator half - 1, [sin | cos]",
       "hojonathanho/diffusion nn.py get_timestep_embedding; arXiv:2006.11239", dim,
       Timestep(kSinCos, 1)},
      {"flow-periods", "Flow-matching time by periods 4e-3 to 4 inclusive, [sin | cos]",
       "Physical-Intelligence/openpi posemb_sincos; lerobot create_sinusoidal_pos_embedding", dim,
       Periods(FrequencyFamily::kPeriods, kConcatenated)},
      {"flow-periods-interleaved",
       "Flow-matching time by periods, exponent i / half, sin cos sin cos",
       "the form printed beside flow-matching formulas; sibling of flow-periods", dim,
       Periods(FrequencyFamily::kPeriodsExclusive, kInterleaved)},
      {"flux",
       "FLUX.1 rotary axes (text index or time, row, column), 16 + 56 + 56 lanes",
       "black-forest-labs/flux modules/layers.py EmbedND",
       {},
       AxialHeads(10000, {16, 56, 56})},
      {"flux-2",
       "FLUX.2 rotary axes, four of 32 lanes, base 2000",
       "diffusers transformer_flux2.py",
       {},
       AxialHeads(2000, {32, 32, 32, 32})},
      {"gpt-j",
       "GPT-J 6B: the first 64 of 256 lanes, neighbours paired",
       "transformers modeling_gptj.py",
       {},
       With(Heads(10000, Pairing::kInterleaved, 256), &Spec::rotary_dim, int64_t{64})},
      {"gpt-neox", "GPT-NeoX and Pythia: the first quarter of the lanes, half-split",
       "EleutherAI/gpt-neox rotary_pct 0.25", head_dim,
       With(Rotary(10000, Pairing::kHalfSplit), &Spec::partial_rotary_factor, 0.25)},
      {"grid-2d-concat", "Image axes (row, column), each interleaved over half the width",
       "two transformer encodings side by side", dim,
       Grid2d(kInterleaved, AxisGrouping::kAxisMajor)},
      {"grid-2d-sum", "Image axes (row, column), each interleaved over the full width, added",
       "two transformer encodings added", dim, Grid2d(kInterleaved, AxisGrouping::kSum)},
      {"hunyuan-video",
       "HunyuanVideo rotary axes (time, row, column), 16 + 56 + 56 lanes, base 256",
       "diffusers transformer_hunyuan_video.py",
       {},
       AxialHeads(256, {16, 56, 56})},
      {"llama-2",
       "Llama 1 and 2: half-split, base 10000, 128 lanes",
       "transformers modeling_llama.py; arXiv:2307.09288",
       {},
       Heads(10000, Pairing::kHalfSplit, 128)},
      {"llama-3",
       "Llama 3.0: half-split, base 500000, 128 lanes, no scaling",
       "transformers modeling_llama.py; arXiv:2407.21783",
       {},
       Heads(500000, Pairing::kHalfSplit, 128)},
      {"mae-2d", "Image axes (column, row): [sin w, cos w | sin h, cos h]",
       "facebookresearch/mae util/pos_embed.py; the same in DiT, SD3, PixArt", dim,
       Grid2d(kConcatenated, AxisGrouping::kAxisMajor)},
      {"rope-2d", "Rotary over image axes (row, column), equal shares, neighbours paired",
       "arXiv:2104.09864 applied per axis", head_dim, Axial(2)},
      {"rope-3d",
       "Rotary over video axes (time, row, column), neighbours paired",
       "arXiv:2104.09864 applied per axis",
       {"head_dim", "axes_dim"},
       Axial(3)},
      {"rope-half-split", "Rotary embedding, lane j with lane j + rotary_dim / 2",
       "arXiv:2104.09864; GPT-NeoX lane order (rotate_half)", head_dim,
       Rotary(10000, Pairing::kHalfSplit)},
      {"rope-interleaved", "Rotary embedding, lane 2j with lane 2j + 1",
       "arXiv:2104.09864, section 3.4.2", head_dim, Rotary(10000, Pairing::kInterleaved)},
      {"tensor2tensor", "Sequence positions, frequencies down to 1/10000 inclusive, [sin | cos]",
       "tensorflow/tensor2tensor common_attention.py get_timing_signal_1d", dim,
       Timestep(kSinCos, 1)},
      {"timestep-cos-sin", "Diffusion timestep, denominator half, [cos | sin]",
       "facebookresearch/DiT models.py; openai/guided-diffusion nn.py timestep_embedding", dim,
       Timestep(kCosSin, 0)},
      {"timestep-sin-cos", "Diffusion timestep, denominator half, [sin | cos]",
       "diffusers embeddings.py get_timestep_embedding with downscale_freq_shift 0", dim,
       Timestep(kSinCos, 0)},
      {"timm-2d", "Image axes (row, column): [sin h, sin w | cos h, cos w]",
       "huggingface/pytorch-image-models pos_embed_sincos.py build_sincos2d_pos_embed", dim,
       Grid2d(kConcatenated, AxisGrouping::kComponentMajor)},
      {"transformer", "Transformer: element 2k is sin(pos / 10000^(2k/d)), 2k + 1 the cosine",
       "arXiv:1706.03762, section 3.5", dim, Geometric(10000, kSinCos, kInterleaved)},
      {"transformer-literal",
       "Element i has its own exponent 2i/d; sine for even i, cosine for odd",
       "tutorials that read the index literally", dim,
       With(Encoding(FrequencyFamily::kPerElement), &Spec::rope_theta, 10000.0)},
      {"wan",
       "Wan 2.x rotary axes (time, row, column), 44 + 42 + 42 lanes",
       "Wan-Video/Wan2.1 modules/model.py; diffusers transformer_wan.py",
       {},
       AxialHeads(10000, {44, 42, 42})},
  };
  std::sort(presets.begin(), presets.end(),
            [](const Preset& a, const Preset& b) { return a.name < b.name; });
  return presets;
}

const std::vector<Preset>& AllPresets() {
  static const auto& presets = *new std::vector<Preset>(MakePresets());
  return presets;
}

}  // namespace

absl::Span<const Preset> Presets() { return AllPresets(); }

const Preset* FindPreset(std::string_view name) {
  const auto& presets = AllPresets();
  const auto found = std::lower_bound(
      presets.begin(), presets.end(), name,
      [](const Preset& preset, std::string_view wanted) { return preset.name < wanted; });
  return found != presets.end() && found->name == name ? &*found : nullptr;
}

}  // namespace phasor
