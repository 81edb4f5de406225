# SPDX-License-Identifier: Apache-2.0
"""Cases of the rotations of diffusers over one axis, and of LTX 2, whose heads differ."""

import math

import numpy as np
import torch
from diffusers.models import embeddings
from diffusers.models.autoencoders import autoencoder_same
from diffusers.models.condition_embedders import condition_embedder_anima as anima
from diffusers.models.transformers import (
    ace_step_transformer,
    transformer_bria,
    transformer_kandinsky,
    transformer_kandinsky6,
    transformer_longcat_audio_dit,
    transformer_ltx2,
    transformer_minimax_music3,
    transformer_omnigen,
    transformer_sana_wm_refiner,
    transformer_stable_audio3,
)
from diffusers.pipelines.kolors import text_encoder as kolors
from diffusers.pipelines.ltx2 import connectors

from diffusers_rope import F32, alike, case, halves, matrices
from multi_axis import diffusers_rotator, repeated, spec_of

LINE = [0, 1, 2, 77, 1023]


def in_model_order(apply, tables):
    """[positions, head] through a function that takes [batch, tokens, heads, lanes] and its own tables."""

    def rotate(x):
        return apply(torch.from_numpy(x)[None, :, None], tables())[0, :, 0].float().numpy()

    return rotate


def lines():
    spec = spec_of("HALF_SPLIT", 16)
    rope = anima.AnimaRotaryEmbedding(16)

    def of_anima():
        return rope(torch.zeros(1), torch.tensor(LINE)[None])

    def of_ace():
        return tuple(t[LINE] for t in ace_step_transformer._ace_step_rotary_freqs(1024, 16, 10000.0, "cpu", torch.float32))

    def rotate(x):
        return anima._apply_rotary_pos_emb(torch.from_numpy(x)[None, None], *of_anima())[0, 0].numpy()

    compute = alike(lambda _: halves(of_anima()), lambda _: halves(of_ace()))
    yield case("line", spec, LINE, "AnimaRotaryEmbedding, ace_step", F32, compute, rotate)
    yield audio_dit()
    yield partial()
    for factor, module in ((1.0, transformer_kandinsky.Kandinsky5RoPE1D), (0.5, transformer_kandinsky6.Kandinsky6RoPE1D)):
        more = {"freqs_scaling": factor} if factor != 1 else {}
        spec = spec_of("INTERLEAVED", 16) | ({"position_scale": factor} if factor != 1 else {})

        def compute(positions, module=module, more=more):
            return matrices(module(16, max_pos=1024, **more)(torch.tensor(positions)).reshape(len(positions), 8, 2, 2))

        yield case(f"line-{module.__name__.lower()}", spec, LINE, module.__name__, "frequency = exp f32, angle f32, matrices f32", compute)
    yield stretched()
    yield kolors_text()
    yield omnigen()


def audio_dit():
    rope = transformer_longcat_audio_dit.AudioDiTRotaryEmbedding(16, 1024)

    def tables():
        return tuple(t[LINE] for t in rope(torch.zeros(1, 1024)))

    rotate = in_model_order(transformer_longcat_audio_dit._apply_rotary_emb, tables)
    spec = spec_of("HALF_SPLIT", 16, rope_theta=100000)
    return case("audio-dit", spec, LINE, "AudioDiTRotaryEmbedding", F32, lambda _: halves(tables()), rotate)


def partial():
    spec = spec_of("HALF_SPLIT", 24, rotary_dim=16)
    angles = [m(16) for m in (transformer_stable_audio3.StableAudio3RotaryEmbedding, autoencoder_same.RotaryEmbedding)]
    music = transformer_minimax_music3.MiniMaxMusic3RotaryEmbedding(16)

    def of_angles(rope):
        angle = rope(1024, torch.device("cpu"))[LINE]
        return angle.cos(), angle.sin()

    def of_music():
        return tuple(t[LINE] for t in music(1024, torch.device("cpu")))

    def by_angles(module, rope):
        return lambda x: module._apply_rotary_partial(torch.from_numpy(x)[:, None], rope(1024, torch.device("cpu"))[LINE])[:, 0].numpy()

    def by_music(x):
        return transformer_minimax_music3._apply_partial_rotary_emb(torch.from_numpy(x)[:, None], of_music())[:, 0].numpy()

    compute = alike(*(lambda _, r=r: halves(of_angles(r)) for r in angles), lambda _: halves(of_music()))
    rotate = alike(by_angles(transformer_stable_audio3, angles[0]), by_angles(autoencoder_same, angles[1]), by_music)
    names = "StableAudio3RotaryEmbedding, autoencoder_same RotaryEmbedding, MiniMaxMusic3RotaryEmbedding"
    return case("partial", spec, LINE, names, F32, compute, rotate)


def stretched():
    """linear_factor divides the frequencies, ntk_factor multiplies the base."""
    modules = (embeddings, transformer_bria)
    factors = {"use_real": True, "linear_factor": 4.0, "ntk_factor": 8.0}
    compute = alike(*(lambda p, m=m: repeated(m.get_1d_rotary_pos_embed(16, torch.tensor(p), **factors)) for m in modules))
    spec = spec_of("INTERLEAVED", 16, rope_theta=80000, rope_scaling={"linear": {"factor": 4}})
    return case("factors", spec, LINE, "get_1d_rotary_pos_embed, linear_factor and ntk_factor", F32, compute)


def kolors_text():
    rope = kolors.RotaryEmbedding(16)

    def table():
        return rope.forward_impl(1024, 16, torch.float32, "cpu")[LINE]

    def rotate(x):
        return kolors.apply_rotary_pos_emb(torch.from_numpy(x)[:, None, None], table())[:, 0, 0].numpy()

    compute = lambda _: (table()[..., 0].numpy(), table()[..., 1].numpy())  # noqa: E731
    return case("kolors", spec_of("INTERLEAVED", 24, rotary_dim=16), LINE, "kolors text_encoder.py RotaryEmbedding", F32, compute, rotate)


def omnigen():
    factors = {"short_factor": [1 + 0.01 * j for j in range(8)], "long_factor": [1 + 0.5 * j for j in range(8)]}
    rope = transformer_omnigen.OmniGenSuScaledRotaryEmbedding(16, rope_scaling=factors)
    positions = [0, 1, 77, 4096, 100000]
    rule = factors | {"original_max_position_embeddings": 4096, "factor": 32}
    spec = spec_of("HALF_SPLIT", 16, rope_scaling={"longrope": rule}, sequence_length=100001)

    def tables():
        return rope(torch.zeros(1), torch.tensor(positions)[None])

    rotate = diffusers_rotator(tables, unbind=-2)
    return case("omnigen", spec, positions, "OmniGenSuScaledRotaryEmbedding", F32, lambda _: halves(tables()), rotate)


# --- LTX 2: one ladder for all lanes of a token, dealt out to the axes, before the heads are split --

POINTS = [[-1, -1, -1], [0, 0, 0], [0.5, 0, 0], [0, 0.25, 0], [0, 0, -0.125], [-0.75, 0.375, 0.9375], [1, 1, 1]]
LADDER = "frequency f64 rounded to f32, angle, cos and sin f32"


def ladder(n):
    return [math.pi / 2 * 10000.0 ** (j / (n - 1)) for j in range(n)]


def coordinates(points, bases):
    """In the units of the model: p = 2 g - 1, exactly."""
    return ((torch.tensor(points) + 1) / 2 * torch.tensor(bases)).T[None]


def explicit(pairing, frequencies, **fields):
    spec = {"kind": "SPEC_KIND_ROTARY", "family": "FREQUENCY_FAMILY_EXPLICIT", "inv_freq": frequencies, "pairing": f"PAIRING_{pairing}"}
    return spec | fields


def ltx2():
    video = [20.0, 2048.0, 2048.0]
    classes = (transformer_ltx2.LTX2AudioVideoRotaryPosEmbed, transformer_sana_wm_refiner.SanaWMLTX2AudioVideoRotaryPosEmbed)
    modules = (transformer_ltx2, transformer_sana_wm_refiner)

    whole = [cls(32) for cls in classes]

    def of_whole(embed):
        return tuple(t[0] for t in embed(coordinates(POINTS, video)))

    compute = alike(*(lambda _, e=e: repeated(t[:, 2:] for t in of_whole(e)) for e in whole))
    turn = alike(*(lambda x, m=m: m.apply_interleaved_rotary_emb(torch.from_numpy(x)[None], of_whole(whole[0]))[0].numpy() for m in modules))
    frequencies = [f for f in ladder(5) for _ in range(3)]
    fields = {"head_dim": 32, "rotary_begin": 2, "rotary_dim": 30, "axes": 3, "axis_rule": "AXIS_RULE_LIST", "axis_of_pair": [j % 3 for j in range(15)]}
    names = "LTX2AudioVideoRotaryPosEmbed, SanaWMLTX2AudioVideoRotaryPosEmbed"
    yield case("ltx-2", explicit("INTERLEAVED", frequencies, **fields), POINTS, names, LADDER, compute, turn, tolerance=2.0**-19)

    split = [cls(32, rope_type="split", num_attention_heads=2) for cls in classes]

    def of_split(embed):
        return embed(coordinates(POINTS, video))  # [1, heads, positions, pairs]

    def flat(tables):
        return np.stack([t[0].transpose(0, 1).flatten(1).numpy() for t in tables])

    def by(module):
        return lambda x: module.apply_split_rotary_emb(torch.from_numpy(x).expand(1, 2, *x.shape), of_split(split[0]))[0, 0].numpy()

    # Every head has frequencies of its own, and every axis zeros where another one turns the pair.
    dealt = [(f, axis) for f in ladder(5) for axis in range(3)]
    dealt = [(0.0, 0)] + dealt
    frequencies = [f if axis == a else 0.0 for head in (dealt[:8], dealt[8:]) for a in range(3) for f, axis in head]
    fields = {"head_dim": 16, "axes": 3, "axis_rule": "AXIS_RULE_DENSE", "frequency_heads": 2}
    compute = alike(*(lambda _, e=e: flat(of_split(e)) for e in split))
    yield case("ltx-2-heads", explicit("HALF_SPLIT", frequencies, **fields), POINTS, f"{names}, rope_type split", LADDER, compute, alike(*map(by, modules)), tolerance=2.0**-19)

    times = [-1, -0.75, 0, 0.125, 1]
    sounds = [cls(32, rope_type="split", modality="audio", num_attention_heads=2) for cls in classes]
    compute = alike(*(lambda p, e=e: flat(e(coordinates([[t] for t in p], [20.0]))) for e in sounds))
    spec = explicit("HALF_SPLIT", ladder(16), head_dim=16, frequency_heads=2)
    yield case("ltx-2-audio", spec, times, f"{names}, modality audio", LADDER, compute, tolerance=2.0**-19)
    texts = connectors.LTX2RotaryPosEmbed1d(32, base_seq_len=16, rope_type="split", num_attention_heads=2)
    places = [0, 2, 8, 9]
    compute = lambda _: flat(t[:, :, places] for t in texts(1, 16, "cpu"))  # noqa: E731
    yield case("ltx-2-text", spec, [p / 8 - 1 for p in places], "LTX2RotaryPosEmbed1d", LADDER, compute, tolerance=2.0**-19)


def cases():
    yield from lines()
    yield from ltx2()
