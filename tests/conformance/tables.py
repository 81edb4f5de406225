# SPDX-License-Identifier: Apache-2.0
"""Cases of rotary tables as upstream code passes them around: one row per position, in every
layout."""

import numpy as np
import torch
from diffusers.models import embeddings as diffusers_embeddings
from timm.layers import pos_embed_sincos as timm

from case import Case
from hf import F32, Rotary, config_of, module, packages
from multi_axis import DIFFUSERS, TIMM, spec_of

POSITIONS = [0, 1, 2, 100, 4095]
PLANE = [[0, 0], [1, 0], [0, 1], [7, 3]]


def flat(*tables):
    """Tables side by side in a row."""
    return np.concatenate([np.asarray(t, np.float32).reshape(t.shape[0], -1) for t in tables], axis=1)


def case(output, compute, upstream, arithmetic=F32, spec=None, positions=None):
    spec = spec or spec_of("HALF_SPLIT", 16)
    return Case(f"table-{output.lower().replace('_', '-')}", spec, positions or POSITIONS, upstream, arithmetic, compute, output=output)


def language():
    config = config_of("llama", "LlamaConfig", hidden_size=64, num_attention_heads=4, max_position_embeddings=4096)
    llama = Rotary("llama", "LlamaRotaryEmbedding", config)

    def tables(positions):
        return tuple(t[0].numpy() for t in llama.tables(positions))

    upstream = f"{packages()} LlamaRotaryEmbedding"
    yield case("COS_SIN_DUPLICATED", lambda p: flat(*tables(p)), upstream)
    yield case("COS_DUPLICATED", lambda p: tables(p)[0], upstream)
    yield case("SIN_DUPLICATED", lambda p: tables(p)[1], upstream)
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 1024}
    config = config_of("gpt_oss", "GptOssConfig", head_dim=16, max_position_embeddings=4096, rope_parameters=yarn)
    oss = Rotary("gpt_oss", "GptOssRotaryEmbedding", config, layout="single")
    scaled = spec_of("HALF_SPLIT", 16, rope_scaling={"yarn": {"factor": 4, "original_max_position_embeddings": 1024}})

    def halves(positions):
        return tuple(t[0].numpy() for t in oss.tables(positions))

    upstream = f"{packages()} GptOssRotaryEmbedding"
    yield case("COS_SIN", lambda p: flat(*halves(p)), upstream, spec=scaled)
    yield case("COS", lambda p: halves(p)[0], upstream, spec=scaled)
    yield case("SIN", lambda p: halves(p)[1], upstream, spec=scaled)
    create = module("gptj").create_sinusoidal_positions
    interleaved = spec_of("INTERLEAVED", 16)
    yield case("SIN_COS", lambda p: create(max(p) + 1, 16)[p].numpy(), f"{packages()} gptj create_sinusoidal_positions", spec=interleaved)


def images():
    interleaved = spec_of("INTERLEAVED", 16)
    one = diffusers_embeddings.get_1d_rotary_pos_embed

    def real(positions):
        return tuple(t.numpy() for t in one(16, torch.tensor(positions), use_real=True))

    upstream = f"{DIFFUSERS} get_1d_rotary_pos_embed"
    yield case("COS_SIN_REPEATED", lambda p: flat(*real(p)), upstream, spec=interleaved)
    yield case("COS_REPEATED", lambda p: real(p)[0], upstream, spec=interleaved)
    yield case("SIN_REPEATED", lambda p: real(p)[1], upstream, spec=interleaved)

    def complex_table(positions):
        return torch.view_as_real(one(16, torch.tensor(positions))).flatten(1).numpy()

    yield case("COMPLEX", complex_table, upstream, spec=interleaved)
    from diffusers.models.transformers.transformer_hidream_image import rope

    def matrices(positions):
        return rope(torch.tensor(positions)[None].float(), 16, 10000)[0].flatten(1).numpy()

    yield case("MATRIX_2X2", matrices, f"{DIFFUSERS} transformer_hidream_image.py rope", "frequency and angle f64, matrices f32", interleaved)
    axes = {"axes": 2, "axes_dim": [8, 8], "axis_rule": "AXIS_RULE_AXIAL"}

    def eva(positions):
        rows = [timm.build_rotary_pos_embed([h + 1, w + 1], dim=16, in_pixels=False) for h, w in positions]
        return np.stack([np.concatenate([sin[-1], cos[-1]]) for sin, cos in rows])

    yield case("SIN_COS_REPEATED", eva, f"{TIMM} build_rotary_pos_embed, as RotaryEmbeddingCat joins it", F32, spec_of("INTERLEAVED", 16, **axes), PLANE)
    dino = timm.RotaryEmbeddingDinoV3(16)
    spec = spec_of("HALF_SPLIT", 16, **axes) | {"family": "FREQUENCY_FAMILY_PERIODS_EXCLUSIVE", "min_period": 1, "max_period": 100}
    del spec["rope_theta"]

    def dinov3(positions):
        return torch.cat(dino._get_pos_embed_from_coords(torch.tensor(positions)), -1).numpy()

    points = [[0.0, 0.0], [-0.9375, -0.9375], [0.03125, -0.46875], [0.5, 0.25]]
    yield case("SIN_COS_DUPLICATED", dinov3, f"{TIMM} RotaryEmbeddingDinoV3", F32, spec, points)


def cases():
    yield from language()
    yield from images()
