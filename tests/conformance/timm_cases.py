# SPDX-License-Identifier: Apache-2.0
"""Cases of what timm has beside the ones in other families: walk.py says what is left."""

import math

import numpy as np
import torch
from timm.layers import attention
from timm.layers import pos_embed_sincos as timm
from timm.models import edgenext, gemma4_vit, naflexvit, xcit

from case import ENCODING, Case
from diffusers_rope import axial
from multi_axis import TIMM, as_numpy, repeated
from sinusoid import encoding

FLAT = [[0, 0], [1, 0], [0, 1], [3, 5], [15, 15], [31, 63]]
F32 = "frequency, angle, cos and sin f32"


def case(name, spec, positions, upstream, arithmetic, compute, rotate=None, **more):
    return Case(f"timm-{name}", spec, positions, f"{TIMM} {upstream}", arithmetic, compute, rotate=rotate, **more)


def last(embed, positions):
    """The last row of the embedding of a grid that ends at each position: [positions, columns]."""
    return torch.stack([embed([h + 1, w + 1])[-1] for h, w in positions])


def joined(table):
    """Sines and cosines side by side, everything twice in a row."""
    sin, cos = table.chunk(2, -1)
    return repeated((cos, sin))


def by_index():
    spec = axial("INTERLEAVED", 8, 8)
    plain = timm.create_rope_embed("base", dim=16, num_heads=1, in_pixels=False)
    cat = timm.create_rope_embed("cat", dim=16, num_heads=1, in_pixels=False)

    def tables(positions):
        rows = [plain.get_embed([h + 1, w + 1]) for h, w in positions]
        return tuple(torch.stack([row[i][-1] for row in rows]) for i in (0, 1))

    def compute(positions):
        made = timm.create_rope_embed("cat", dim=16, num_heads=1, in_pixels=False)
        rows = made.get_batch_embeds([(h + 1, w + 1) for h, w in positions], seq_len=32 * 64)
        of_cat = joined(torch.stack([row[(h + 1) * (w + 1) - 1] for row, (h, w) in zip(rows, positions, strict=True)]))
        sin, cos = tables(positions)
        of_plain = repeated((cos, sin))
        assert all(np.array_equal(a, b) for a, b in zip(of_plain, of_cat, strict=True))
        return of_plain

    def rotate(x):
        x = torch.from_numpy(x)
        by_list = timm.apply_rot_embed_list(x, *tables(FLAT))[0]
        by_cat = timm.apply_rot_embed_cat(x, last(cat.get_embed, FLAT))
        assert torch.equal(by_list, by_cat) and torch.equal(by_cat, in_attention(x, last(cat.get_embed, FLAT)))
        return by_list.numpy()

    yield case("index", spec, FLAT, "RotaryEmbedding, RotaryEmbeddingCat, AttentionRope", F32, compute, rotate)


def in_attention(x, rope):
    """What an attention layer attends with, of queries x, [tokens, head_dim]."""
    layer = attention.AttentionRope(x.shape[1], num_heads=1, num_prefix_tokens=0, qkv_fused=False)
    layer.q_proj = torch.nn.Identity()
    seen = []
    saved = attention.F.scaled_dot_product_attention
    attention.F.scaled_dot_product_attention = lambda q, k, v, **_: seen.append(q) or v
    try:
        layer(x[None], rope=rope)
    finally:
        attention.F.scaled_dot_product_attention = saved
    return seen[0][0, 0].detach()


def halves_of_blocks():
    """Gemma 4's vision tower, whose axes are (column, row)."""
    spec = axial("BLOCK_HALF_SPLIT", 32, 32) | {"rope_theta": 100}
    embed = gemma4_vit.Gemma4RotaryEmbedding2D(64)

    def tables(positions):
        return embed(torch.zeros(1), torch.tensor(positions)[None])

    def compute(positions):
        return as_numpy(torch.cat([t[0, :, :16], t[0, :, 32:48]], -1) for t in tables(positions))

    def rotate(x):
        return gemma4_vit.apply_multidimensional_rope(torch.from_numpy(x)[None, :, None], *tables(FLAT))[0, :, 0].numpy()

    yield case("halves-of-blocks", spec, FLAT, "Gemma4RotaryEmbedding2D, apply_multidimensional_rope of gemma4_vit.py", F32, compute, rotate)


def mixed():
    """Learned frequencies: every axis turns every pair, differently in every head of every layer."""
    torch.manual_seed(7)
    heads, pairs = 2, 4
    embed = timm.create_rope_embed("mixed", dim=16, num_heads=heads, depth=2)
    frequencies = embed.freqs.detach().double()  # [axes (x, y), depth, heads, pairs]
    spec = {"kind": "SPEC_KIND_ROTARY", "family": "FREQUENCY_FAMILY_EXPLICIT", "pairing": "PAIRING_INTERLEAVED", "head_dim": 2 * pairs}
    spec |= {"inv_freq": [float(frequencies[a, 1, h, j]) for h in range(heads) for a in (1, 0) for j in range(pairs)]}
    spec |= {"axes": 2, "axis_rule": "AXIS_RULE_DENSE", "frequency_heads": heads}

    def rows(positions):
        fresh = timm.init_random_2d_freqs(8, 2, heads)
        assert fresh.shape == embed.freqs.shape
        return torch.stack([embed.get_embed([h + 1, w + 1])[1][:, -1] for h, w in positions])  # [positions, heads, sines | cosines]

    def compute(positions):
        sin, cos = rows(positions).detach().chunk(2, -1)
        return as_numpy(t[..., ::2].flatten(1) for t in (cos, sin))

    def rotate(x):
        size = (32, 64)
        layers = naflexvit.NaFlexRopeIterator(embed, {size: [0]}, [size], 1, 32 * 64, torch.device("cpu"), torch.float32)
        second = list(layers)[1][0, 0].detach()  # [tokens, sines | cosines] of head 0
        at = torch.stack([second[h * 64 + w] for h, w in FLAT])
        assert torch.equal(at, rows(FLAT).detach()[:, 0])
        return timm.apply_rot_embed_cat(torch.from_numpy(x), at).numpy()

    yield case("mixed", spec, FLAT, "RotaryEmbeddingMixed, axes (row, column)", F32, compute, rotate)


def tables_of_grids():
    spec = encoding("SIN_COS", "CONCATENATED", 32, axes=2, grouping="AXIS_GROUPING_AXIS_MAJOR")

    def sincos(positions):
        return last(lambda size: timm.build_sincos2d_pos_embed(size, 32, interleave_sin_cos=True), positions).numpy()

    yield case("axis-major", spec, FLAT, "build_sincos2d_pos_embed, interleave_sin_cos", F32, sincos)

    bands, points = 4, [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    spec = {"kind": ENCODING, "family": "FREQUENCY_FAMILY_LINEAR", "min_freq": 0.5, "max_freq": 56, "frequency_unit": "FREQUENCY_UNIT_TURNS"}
    spec |= {"dim": 4 * bands, "axes": 2, "order": "TRIG_ORDER_SIN_COS", "grouping": "AXIS_GROUPING_COMPONENT_MAJOR", "arrangement": "ARRANGEMENT_CONCATENATED"}
    embed = timm.FourierEmbed(max_res=224, num_bands=bands)

    def features(_):
        rows = embed(torch.zeros(1, 1, 2, 2))[0, :, 1:]  # after the image: the grid, sines and cosines of both axes
        return rows.reshape(4, 1 + 2 * bands, 2)[:, 1:].reshape(4, 2, bands, 2).transpose(-1, -2).flatten(1).numpy()

    steps = "frequency = linspace f32 times pi, angle = f32 product, sin and cos f32"
    yield case("fourier", spec, points, "FourierEmbed, its columns transposed", steps, features)


def shares_of_images():
    """(row, column) as shares of the image, times 2 pi."""
    height, width, hidden = 6, 10, 16
    picked = [(0, 0), (1, 0), (0, 1), (5, 9), (3, 4)]

    def share(i, n):
        return float(np.float32(i + 1) / np.float32(n + 1e-6) * np.float32(2 * math.pi))

    positions = [[share(h, height), share(w, width)] for h, w in picked]
    spec = encoding("SIN_COS", "INTERLEAVED", 2 * hidden, axes=2, grouping="AXIS_GROUPING_AXIS_MAJOR")

    class Projection(torch.nn.Identity):
        weight = torch.zeros(1)

    def compute(_):
        found = []
        for cls, shape in ((edgenext.PositionalEncodingFourier, (1, height, width)), (xcit.PositionalEncodingFourier, (1, height, width))):
            embed = cls(hidden_dim=hidden, dim=2 * hidden)
            embed.token_projection = Projection()
            rows = embed(shape) if cls is edgenext.PositionalEncodingFourier else embed(*shape)
            found.append(torch.stack([rows[0, :, h, w] for h, w in picked]).numpy())
        assert np.allclose(*found, rtol=0, atol=2.0**-20)
        return found[0]

    yield case("shares", spec, positions, "PositionalEncodingFourier of edgenext.py and xcit.py", "frequency, angle, sin and cos f32", compute)


def cases():
    for group in (by_index, halves_of_blocks, mixed, tables_of_grids, shares_of_images):
        yield from group()
