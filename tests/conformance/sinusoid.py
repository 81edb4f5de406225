# SPDX-License-Identifier: Apache-2.0
"""Cases of additive encodings of sequences and grids."""

import math

import numpy as np
import torch
from diffusers.models import embeddings as diffusers_embeddings
from timm.layers import pos_embed_sincos as timm

from case import ENCODING, Case, preset_case
from hf import module, packages

DIFFUSERS = "diffusers 0.42.1 embeddings.py"
F32 = "frequency f32 (exp of f32), angle = f32 product, sin and cos f32"
F64 = "frequency, angle, sin and cos f64, rounded to f32"
SEQUENCE = [0, 1, 2, 7, 100, 511, 512, 1025]
PLANE = [[0, 0], [1, 0], [0, 1], [3, 5], [15, 2], [15, 15]]  # in the order of the preset's axes


def encoding(order, arrangement, dim, **fields):
    spec = {"kind": ENCODING, "family": "FREQUENCY_FAMILY_GEOMETRIC", "rope_theta": 10000, "dim": dim}
    return spec | {"order": f"TRIG_ORDER_{order}", "arrangement": f"ARRANGEMENT_{arrangement}"} | fields


def table(rows):
    """Upstream's table of positions 0, 1, 2, ...: rows(count)."""
    return lambda positions: np.asarray(rows(max(positions) + 1), np.float32)[positions]


def transformer_rows(dim):
    return lambda count: diffusers_embeddings.SinusoidalPositionalEmbedding(dim, count).pe[0]


def sequences():
    upstream = f"{DIFFUSERS} SinusoidalPositionalEmbedding"
    yield preset_case("transformer", SEQUENCE, table(transformer_rows(64)), F32, {"dim": 64}, upstream=upstream)
    for dim in (64, 65):
        rows = module("speech_to_text").Speech2TextSinusoidalPositionalEmbedding.get_embedding
        upstream = f"{packages()} Speech2TextSinusoidalPositionalEmbedding.get_embedding, fairseq's function"
        compute = table(lambda count, rows=rows, dim=dim: rows(count, dim))
        case = preset_case("fairseq", SEQUENCE, compute, F32, {"dim": dim}, upstream=upstream)
        case.name = f"fairseq-{dim}"
        yield case
        case = preset_case("tensor2tensor", SEQUENCE, table(lambda count, dim=dim: timing_signal(count, dim)), F32, {"dim": dim})
        case.name = f"tensor2tensor-{dim}"
        yield case
        create = module("roformer").RoFormerSinusoidalPositionalEmbedding
        compute = table(lambda count, create=create, dim=dim: create(count, dim).create_weight())
        case = preset_case("roformer-sinusoid", SEQUENCE, compute, F64, {"dim": dim})
        case.name = f"roformer-sinusoid-{dim}"
        yield case
    compute = table(lambda count: module("whisper").sinusoids(count, 384))
    yield preset_case("whisper", [0, 1, 2, 7, 100, 1499, 1500, 3001], compute, F32, {"dim": 384})
    yield scaled()
    yield transcribed_literal()
    yield memory()


def timing_signal(length, channels, min_timescale=1.0, max_timescale=1.0e4):
    """tensor2tensor's get_timing_signal_1d, which needs TensorFlow 1, in numpy's f32."""
    position = np.arange(length, dtype=np.float32)
    n = channels // 2
    increment = np.float32(math.log(max_timescale / min_timescale) / max(n - 1, 1))
    inverse = np.float32(min_timescale) * np.exp(np.arange(n, dtype=np.float32) * -increment)
    angle = position[:, None] * inverse[None, :]
    signal = np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
    return np.pad(signal, [[0, 0], [0, channels % 2]])


def scaled():
    from x_transformers.x_transformers import ScaledSinusoidalEmbedding

    embedding = ScaledSinusoidalEmbedding(64)
    spec = encoding("SIN_COS", "CONCATENATED", 64, attention_factor=0.125)

    def compute(positions):
        return embedding(torch.zeros(1, len(positions), 64), pos=torch.tensor(positions).float()).detach().numpy()

    return Case("scaled-sinusoid", spec, SEQUENCE, "x-transformers 2.31.10 ScaledSinusoidalEmbedding", F32, compute)


def transcribed_literal():
    def compute(positions):
        index = np.arange(64)
        angle = np.asarray(positions, np.float64)[:, None] / 10000.0 ** (2 * index / 64)
        return np.where(index % 2 == 0, np.sin(angle), np.cos(angle)).astype(np.float32)

    upstream = "transcribed from tutorials: angle = position / 10000 ** (2 * i / d) for every column i"
    return preset_case("transformer-literal", SEQUENCE, compute, F64, {"dim": 64}, upstream=upstream)


def memory():
    def compute(positions):
        n = 32
        frequency = torch.exp(torch.arange(n).float() * (-math.log(10000.0) / n))
        angle = torch.tensor(positions).float()[:, None] * frequency
        return torch.stack([angle.sin(), angle.cos() - 1], -1).flatten(1).numpy()

    upstream = "transcribed from lerobot: interleaved, cosine minus one"
    return preset_case("pi0.5-memory", [0, -1, -2, -7, -63], compute, F32, {"dim": 64}, upstream=upstream)


def grids():
    def by_position(dim):
        def compute(positions):
            grid = [torch.tensor([p[axis] for p in positions], dtype=torch.float32) for axis in (0, 1)]
            return diffusers_embeddings.get_2d_sincos_pos_embed_from_grid(dim, grid).numpy()

        return compute

    yield preset_case("mae-2d", PLANE, by_position(64), F64, {"dim": 64})

    def by_grid(dim, size, **options):
        rows = diffusers_embeddings.get_2d_sincos_pos_embed(dim, size, **options)
        return lambda positions: np.stack([rows[row * size + column] for column, row in positions])

    yield preset_case("dit-2d", PLANE, by_grid(1152, 16, base_size=16), F64)
    wide = PLANE + [[63, 20], [33, 63]]
    # The step does not depend on the width: a table of 384 by 384 by 1536 takes several GB to make.
    for name, preset, dim, size in [("sd3-2d", "sd3-2d", 1536, 192), ("sd3.5-large-2d", "sd3-2d", 2432, 192), ("sd3.5-medium-2d", "sd3.5-medium-2d", 64, 384)]:
        case = preset_case(preset, wide + [[size // 2, 64], [size - 1, size - 1]], stable_diffusion_3(dim, size), F64 + "; positions f32", {"dim": dim})
        case.name = name
        yield case
    yield preset_case("pixart-2d", wide, by_grid(1152, 64, base_size=64, interpolation_scale=2), F64)
    yield cogvideox()

    def timm_rows(interleave):
        def compute(positions):
            rows = timm.build_sincos2d_pos_embed([16, 16], 64, interleave_sin_cos=interleave)
            return np.stack([rows[row * 16 + column] for row, column in positions])

        return compute

    yield preset_case("timm-2d", PLANE, timm_rows(False), F32, {"dim": 64})
    spec = encoding("SIN_COS", "CONCATENATED", 64, axes=2, grouping="AXIS_GROUPING_AXIS_MAJOR")
    upstream = "timm 1.0.31 build_sincos2d_pos_embed(interleave_sin_cos=True)"
    yield Case("timm-2d-interleaved", spec, PLANE, upstream, F32, timm_rows(True))
    yield detr()
    yield big_vision()
    yield from two_transformers()


def stable_diffusion_3(dim, size):
    def compute(positions):
        embed = diffusers_embeddings.PatchEmbed(128, 128, 2, 16, dim, pos_embed_max_size=size).pos_embed[0]
        return np.stack([embed[row * size + column] for column, row in positions])

    return compute


def cogvideox():
    width, height, frames = 8, 6, 5

    def compute(positions):  # (time, column, row)
        rows = diffusers_embeddings.get_3d_sincos_pos_embed(1920, (width, height), frames, 1.875, 1.0)
        return np.stack([rows[t, row * width + column] for t, column, row in positions])

    positions = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 7, 5], [4, 3, 2]]
    return preset_case("cogvideox-2b", positions, compute, F64 + "; positions f32", tolerance=2.0**-20)


def detr():
    embedding = module("detr").DetrSinePositionEmbedding(32)

    def compute(positions):  # from 1
        size = [max(p[axis] for p in positions) for axis in (0, 1)]
        rows = embedding.build_sine_position_embedding(torch.Size([1, 1, *size]), "cpu", torch.float32, 32)
        rows = rows.flatten(0, -2) if rows.shape[-1] == 64 else rows.flatten(2)[0].T
        return np.stack([rows[(y - 1) * size[1] + x - 1] for y, x in positions])

    spec = encoding("SIN_COS", "INTERLEAVED", 64, axes=2, grouping="AXIS_GROUPING_AXIS_MAJOR")
    positions = [[1, 1], [2, 1], [1, 2], [3, 5], [16, 16]]
    return Case("detr-2d", spec, positions, f"{packages()} DetrSinePositionEmbedding", F32, compute)


def big_vision():
    """posemb_sincos_2d of big_vision, which needs JAX, in numpy's f32."""

    def compute(positions):  # (column, row)
        omega = np.arange(16, dtype=np.float32) / np.float32(15)
        omega = np.float32(1) / np.float32(10000) ** omega
        x, y = (np.asarray([p[axis] for p in positions], np.float32)[:, None] * omega for axis in (0, 1))
        return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)

    upstream = "transcribed: google-research/big_vision models/vit.py posemb_sincos_2d"
    return preset_case("big-vision-2d", PLANE, compute, F32, {"dim": 64}, upstream=upstream)


def two_transformers():
    upstream = f"{DIFFUSERS} SinusoidalPositionalEmbedding, one per axis"

    def side_by_side(positions):
        return np.concatenate([table(transformer_rows(32))([p[axis] for p in positions]) for axis in (0, 1)], axis=1)

    def added(positions):
        return sum(table(transformer_rows(32))([p[axis] for p in positions]) for axis in (0, 1))

    yield preset_case("grid-2d-concat", PLANE, side_by_side, F32, {"dim": 64}, upstream=upstream)
    yield preset_case("grid-2d-sum", PLANE, added, F32, {"dim": 32}, upstream=upstream)


def cases():
    yield from sequences()
    yield from grids()
