# SPDX-License-Identifier: Apache-2.0
"""Cases of rotary embeddings over several axes: images, video, and language models that see them.
"""

import math

import numpy as np
import torch
from diffusers.models import embeddings as diffusers_embeddings
from timm.layers import pos_embed_sincos as timm

from case import PRESETS, ROTARY, Case, preset_case
from hf import F32, Rotary, config_of, packages

DIFFUSERS = "diffusers 0.42.1"
TIMM = "timm 1.0.31 pos_embed_sincos.py"
F64 = "frequency and angle f64, cos and sin rounded to f32"


def spec_of(pairing, head_dim, **fields):
    return {"kind": ROTARY, "family": "FREQUENCY_FAMILY_GEOMETRIC", "rope_theta": 10000, "pairing": f"PAIRING_{pairing}", "head_dim": head_dim} | fields


def as_numpy(tables):
    return tuple(np.ascontiguousarray(t.float().numpy()) for t in tables)


def repeated(tables):
    """diffusers' tables say everything twice in a row."""
    return as_numpy(t.reshape(-1, t.shape[-1])[:, ::2] for t in tables)


def diffusers_rotator(tables, unbind=-1):
    def rotate(x):
        return diffusers_embeddings.apply_rotary_emb(torch.from_numpy(x)[None, None], tables(), use_real_unbind_dim=unbind)[0, 0].numpy()

    return rotate


def last_row(tables_of_grid):
    """Upstream makes whole grids; the last row of a grid of size p + 1 is position p."""

    def tables(positions):
        rows = [tables_of_grid([p + 1 for p in position]) for position in positions]
        return tuple(torch.stack([row[i].reshape(-1, row[i].shape[-1])[-1] for row in rows]) for i in (0, 1))

    return tables


GRID = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 2, 3], [5, 17, 40], [20, 44, 79], [2, 63, 127]]


def image_models():
    from diffusers.models.transformers import transformer_flux, transformer_flux2, transformer_hunyuan_video, transformer_wan

    def by_ids(name, embedding, positions):
        def tables(positions=positions):
            return embedding(torch.tensor(positions))

        return preset_case(name, positions, lambda p: repeated(tables(p)), F64, rotate=diffusers_rotator(tables))

    ids = GRID + [[0, 255, 255], [512, 512, 512]]
    yield by_ids("flux", transformer_flux.FluxPosEmbed(10000, [16, 56, 56]), ids)
    four = [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [10, 3, 7, 511], [1, 127, 127, 512]]
    yield by_ids("flux-2", transformer_flux2.Flux2PosEmbed(2000, [32, 32, 32, 32]), four)

    def by_grid(name, embedding, arithmetic, more=()):
        tables = last_row(lambda size: embedding(torch.empty(1, 1, *size)))
        positions = GRID + list(more)
        rotate = diffusers_rotator(lambda: tables(positions))
        return preset_case(name, positions, lambda p: repeated(tables(p)), arithmetic, rotate=rotate)

    hunyuan = transformer_hunyuan_video.HunyuanVideoRotaryPosEmbed(1, 1, [16, 56, 56])
    yield by_grid("hunyuan-video", hunyuan, "frequency, angle, cos and sin f32", [[128, 3, 3]])
    wan = transformer_wan.WanRotaryPosEmbed(128, (1, 1, 1), 1024)
    yield by_grid("wan", wan, F64, [[1023, 3, 3], [3, 1023, 3]])
    yield qwen_image()
    yield from complex_tables()
    tables = last_row(
        lambda size: diffusers_embeddings.get_3d_rotary_pos_embed(
            64, None, size[1:], size[0], grid_type="slice", max_size=size[1:]
        )
    )
    rotate = diffusers_rotator(lambda: tables(GRID))
    steps = "frequency, angle, cos and sin f32"
    yield preset_case("cogvideox-5b", GRID, lambda p: repeated(tables(p)), steps, rotate=rotate)


def complex_rotator(table):
    def rotate(x):
        pairs = torch.view_as_complex(torch.from_numpy(x).reshape(len(x), -1, 2))
        return torch.view_as_real(pairs * table()).flatten(1).numpy()

    return rotate


def qwen_image():
    from diffusers.models.transformers.transformer_qwenimage import QwenEmbedRope

    plain, centred = (QwenEmbedRope(10000, [16, 56, 56], scale_rope=s) for s in (False, True))
    positions = GRID + [[0, -32, -48], [0, -2048, -1], [4095, 0, 0]]

    def row(position):
        t, h, w = position
        if h >= 0:
            return plain._compute_video_freqs(t + 1, h + 1, w + 1)[-1]
        return centred._compute_video_freqs(1, -2 * h, -2 * w)[0]  # from -(H - H // 2)

    def table():
        return torch.stack([row(p) for p in positions])

    steps = "frequency, angle f32, complex64 table"
    return preset_case("qwen-image", positions, lambda p: as_numpy((table().real, table().imag)), steps, rotate=complex_rotator(table))


def complex_tables():
    from diffusers.models.transformers import transformer_lumina2, transformer_z_image

    z = transformer_z_image.RopeEmbedder(256.0, [32, 48, 48], [1536, 512, 512])
    lumina = transformer_lumina2.Lumina2RotaryPosEmbed(10000, [32, 32, 32], [300, 512, 512])
    z_positions = GRID + [[1535, 511, 511]]
    lumina_positions = GRID + [[299, 511, 511]]

    def z_table():
        return z(torch.tensor(z_positions))

    def lumina_table():
        return lumina._get_freqs_cis(torch.tensor(lumina_positions)[None])[0].to(torch.complex64)

    steps = "frequency and angle f64, angle rounded to f32, complex64 table"
    yield preset_case("z-image", z_positions, lambda p: as_numpy((z_table().real, z_table().imag)), steps, rotate=complex_rotator(z_table))
    rotate = complex_rotator(lumina_table)
    yield preset_case("lumina-2", lumina_positions, lambda p: as_numpy((lumina_table().real, lumina_table().imag)), F64, rotate=rotate)


def ltx():
    """Every axis' frequencies side by side, over all heads at once."""
    from diffusers.models.transformers import transformer_ltx

    embedding = transformer_ltx.LTXVideoRotaryPosEmbed(2048)
    positions = [[-1, -1, -1], [0, 0, 0], [0.5, 0, 0], [0, 0.25, 0], [0, 0, -0.125], [-0.75, 0.375, 0.9375], [1, 1, 1]]

    def tables(positions=positions):
        bases = torch.tensor([20.0, 2048.0, 2048.0])
        coordinates = (torch.tensor(positions) + 1) / 2 * bases  # exact: p = 2 g - 1
        return embedding(torch.empty(1), video_coords=coordinates.T[None])

    def compute(positions):
        cos, sin = (t[0] for t in tables(positions))
        assert (cos[:, :2] == 1).all() and (sin[:, :2] == 0).all()
        return as_numpy((cos[:, 2::2], sin[:, 2::2]))

    def rotate(x):
        return transformer_ltx.apply_rotary_emb(torch.from_numpy(x)[None], tables())[0].numpy()

    return preset_case("ltx-video", positions, compute, "frequency, angle, cos and sin f32", rotate=rotate, tolerance=2.0**-19)


def vision_towers():
    dino = timm.RotaryEmbeddingDinoV3(64)
    positions = [[0, 0], [-0.9375, -0.9375], [0.03125, -0.46875], [0.5, 0.25], [0.96875, 0.96875], [1, -1]]

    def dino_tables(positions=positions):
        return dino._get_pos_embed_from_coords(torch.tensor(positions))  # sines first

    def compute(positions):
        sin, cos = dino_tables(positions)
        return as_numpy((cos[:, :32], sin[:, :32]))

    def rotate(x):
        sin, cos = dino_tables()
        return timm.apply_rot_embed(torch.from_numpy(x), sin, cos, half=True).numpy()

    yield preset_case("dinov3", positions, compute, "period f32, angle = f32 quotient, cos and sin f32", rotate=rotate)

    def eva_tables(positions):
        rows = [timm.build_rotary_pos_embed([h + 1, w + 1], dim=64, in_pixels=False) for h, w in positions]
        return tuple(torch.stack([row[i][-1] for row in rows]) for i in (0, 1))

    flat = [[0, 0], [1, 0], [0, 1], [3, 5], [15, 15], [31, 63]]

    def eva_rotate(x):
        sin, cos = eva_tables(flat)
        return timm.apply_rot_embed(torch.from_numpy(x), sin, cos).numpy()

    steps = "frequency, angle, cos and sin f32"
    yield preset_case("eva-02", flat, lambda p: repeated(eva_tables(p)[::-1]), steps, rotate=eva_rotate)
    config = config_of("qwen2_vl", "Qwen2VLVisionConfig")
    rotary = Rotary("qwen2_vl", "Qwen2VLVisionRotaryEmbedding", config, apply="rotate_half")

    def qwen_tables(positions):
        return rotary.embedding(torch.zeros(1), torch.tensor(positions))

    def qwen_rotate(x):
        cos, sin = (t.reshape(-1, 80) for t in qwen_tables(flat))
        q = torch.from_numpy(x)
        return (q * cos + rotary.apply_function(q) * sin).numpy()

    yield preset_case("qwen2-vl-vision", flat, lambda p: tuple(rotary.pairs(t) for t in qwen_tables(p)), F32, rotate=qwen_rotate)


TEXT = [[0, 0, 0], [1, 1, 1], [2, 0, 0], [0, 2, 0], [0, 0, 2], [5, 6, 7], [100, 3, 40], [1023, 1000, 999]]


def language_models():
    def case(name, model, prefix, rotary_name, layout="duplicated", rotary_dim=None, **fields):
        preset = PRESETS[name]
        spec = preset["spec"]
        parameters = {"rope_type": "default", "rope_theta": float(spec["rope_theta"]), "mrope_section": spec["mrope_section"]}
        if rotary_dim:
            parameters["partial_rotary_factor"] = rotary_dim / spec["head_dim"]
        config = config_of(
            model,
            f"{prefix}Config",
            hidden_size=4 * spec["head_dim"],
            num_attention_heads=4,
            max_position_embeddings=preset["context_length"],
            rope_parameters=parameters,
            **fields,
        )
        rotary = Rotary(model, rotary_name, config, layout=layout)
        context = preset["context_length"]
        positions = TEXT + [[context - 1] * 3, [context] * 3, [2 * context + 1, 17, 23]]
        own = None if name == "ernie-4.5-vl" else rotary.frequencies  # that one keeps them in another order
        return preset_case(name, positions, rotary.compute, F32, rotate=rotary.rotator(positions), frequencies=own)

    yield case("qwen2-vl", "qwen2_vl", "Qwen2VLText", "Qwen2VLRotaryEmbedding")
    yield case("qwen2.5-vl", "qwen2_5_vl", "Qwen2_5_VLText", "Qwen2_5_VLRotaryEmbedding")
    yield case("qwen3-vl", "qwen3_vl", "Qwen3VLText", "Qwen3VLTextRotaryEmbedding", head_dim=128)
    yield case("qwen3.5", "qwen3_5", "Qwen3_5Text", "Qwen3_5TextRotaryEmbedding", rotary_dim=64, head_dim=256)
    yield case("glm-4.1v", "glm4v", "Glm4vText", "Glm4vTextRotaryEmbedding", "repeated", rotary_dim=64)
    yield case("ernie-4.5-vl", "ernie4_5_vl_moe", "Ernie4_5_VLMoeText", "Ernie4_5_VLMoeTextRotaryEmbedding", "repeated")


def definitions():
    import rotary_embedding_torch as lucidrains

    steps = "frequencies f32, angle = f32 product, cos and sin f32"
    upstream = "rotary-embedding-torch 0.9.1 RotaryEmbedding.get_axial_freqs"
    for name, axes, width in (("rope-2d", 2, 32), ("rope-3d", 3, 16)):
        embedding = lucidrains.RotaryEmbedding(width, cache_if_possible=False)
        positions = [p[:axes] for p in GRID]

        def angles(embedding=embedding, positions=positions):
            return torch.stack([embedding.get_axial_freqs(*(c + 1 for c in p)).flatten(0, -2)[-1] for p in positions]).detach()

        def compute(positions, angles=angles):
            return as_numpy((angles()[:, ::2].cos(), angles()[:, ::2].sin()))

        def rotate(x, angles=angles):
            return lucidrains.apply_rotary_emb(angles(), torch.from_numpy(x)).numpy()

        given = {"head_dim": axes * width} | ({"axes_dim": [width] * axes} if axes == 3 else {})
        yield preset_case(name, positions, compute, steps, given, rotate, upstream)


def conventions():
    yield from axis_factors()
    yield from blocks()
    yield from frequency_orders()
    yield from dense()
    yield from pixels()


def axis_factors():
    from diffusers.models.transformers import transformer_cosmos, transformer_hidream_image, transformer_kandinsky

    cosmos = transformer_cosmos.CosmosRotaryPosEmbed(128, (128, 240, 240), (1, 1, 1))
    theta = [10000.0 * cosmos.t_ntk_factor, 10000.0, 10000.0]
    spec = spec_of("HALF_SPLIT", 128, axes=3, axes_dim=[44, 42, 42], axis_rule="AXIS_RULE_AXIAL", axes_theta=theta)
    del spec["rope_theta"]
    tables = last_row(lambda size: cosmos(torch.empty(1, 1, *size)))
    rotate = diffusers_rotator(lambda: tables(GRID), unbind=-2)
    yield Case("axial-base-per-axis", spec, GRID, f"{DIFFUSERS} CosmosRotaryPosEmbed", F32, lambda p: as_numpy(t[:, :64] for t in tables(p)), rotate=rotate)

    kandinsky = transformer_kandinsky.Kandinsky5RoPE3D([16, 24, 24])
    spec = spec_of("INTERLEAVED", 64, axes=3, axes_dim=[16, 24, 24], axis_rule="AXIS_RULE_AXIAL", axes_position_scale=[1, 0.5, 0.25])

    def matrices(positions):
        rows = []
        for t, h, w in positions:
            one = kandinsky((1, 1, 1, 1), [torch.tensor([c]) for c in (t, h, w)], scale_factor=(1.0, 2.0, 4.0))
            rows.append(one.reshape(-1, 2, 2))
        table = torch.stack(rows)
        return as_numpy((table[..., 0, 0], table[..., 1, 0]))

    steps = "frequency = exp f32, angle = f32 product, divided by the axis' factor, 2 by 2 matrices f32"
    yield Case("axial-scale-per-axis", spec, GRID, f"{DIFFUSERS} Kandinsky5RoPE3D", steps, matrices)

    hidream = transformer_hidream_image.HiDreamImageEmbedND(10000, [64, 32, 32])
    spec = spec_of("INTERLEAVED", 128, axes=3, axes_dim=[64, 32, 32], axis_rule="AXIS_RULE_AXIAL")

    def hidream_matrices(positions):
        table = hidream(torch.tensor(positions)[None].float()).reshape(len(positions), 64, 2, 2)
        return as_numpy((table[..., 0, 0], table[..., 1, 0]))

    yield Case("axial-matrices", spec, GRID, f"{DIFFUSERS} HiDreamImageEmbedND", F64, hidream_matrices)


def blocks():
    """Half-split inside each axis' block."""
    import transformers.models.gemma4.modeling_gemma4 as gemma4

    embedding = gemma4.Gemma4VisionRotaryEmbedding(config_of("gemma4", "Gemma4VisionConfig"))
    positions = [p[1:] for p in GRID]
    spec = spec_of("BLOCK_HALF_SPLIT", 64, axes=2, axes_dim=[32, 32], axis_rule="AXIS_RULE_AXIAL") | {"rope_theta": 100}

    def tables(positions):
        return embedding(torch.zeros(1), torch.tensor(positions)[None])

    def compute(positions):
        return as_numpy(torch.cat([t[0, :, :16], t[0, :, 32:48]], -1) for t in tables(positions))

    def rotate(x):
        return gemma4.apply_multidimensional_rope(torch.from_numpy(x)[None, :, None], *tables(positions), torch.tensor(positions)[None])[0, :, 0].numpy()

    upstream = f"{packages()} Gemma4VisionRotaryEmbedding, apply_multidimensional_rope"
    yield Case("axial-halves-of-blocks", spec, positions, upstream, F32, compute, rotate=rotate)

    scale = [1, 0.5, 0.5]
    spec = spec_of("BLOCK_HALF_SPLIT", 96, axes=3, axes_dim=[32, 32, 32], axis_rule="AXIS_RULE_AXIAL", axes_position_scale=scale)
    size = [1 + max(p[a] for p in GRID) for a in range(3)]

    def frequencies():
        return diffusers_embeddings.get_3d_rotary_pos_embed_allegro(96, ((0, 0), size[1:]), size[1:], size[0], (1.0, 2.0, 2.0))[:3]

    def allegro(positions):
        rows = [[f[i][[p[a] for p in positions], :16] for a, f in enumerate(frequencies())] for i in (0, 1)]
        return as_numpy(torch.cat(row, -1) for row in rows)

    def rotate_allegro(x):
        at = torch.tensor(GRID).T[:, None]
        return diffusers_embeddings.apply_rotary_emb_allegro(torch.from_numpy(x)[None, None], frequencies(), at)[0, 0].numpy()

    upstream = f"{DIFFUSERS} get_3d_rotary_pos_embed_allegro, apply_rotary_emb_allegro"
    yield Case("axial-halves-of-blocks-scaled", spec, GRID, upstream, F32, allegro, rotate=rotate_allegro)


def frequency_orders():
    spec = spec_of("INTERLEAVED", 48, axes=2, axis_rule="AXIS_RULE_FREQUENCY_MAJOR")
    positions = [p[1:] for p in GRID]

    def lumina(positions):
        rows = [diffusers_embeddings.get_2d_rotary_pos_embed_lumina(48, h + 1, w + 1)[-1, -1] for h, w in positions]
        table = torch.stack(rows)
        return as_numpy((table.real, table.imag))

    steps = "frequency and angle f32, complex64 table"
    yield Case("frequency-major", spec, positions, f"{DIFFUSERS} get_2d_rotary_pos_embed_lumina", steps, lumina)

    # timm's sections do not tile the frequencies: the temporal axis takes what is left.
    spec = spec_of("HALF_SPLIT", 64, axes=3, axis_rule="AXIS_RULE_MROPE_INTERLEAVED", mrope_section=[8, 12, 12])
    embedding = timm.RotaryEmbeddingMRope(64, (8, 12, 12))
    planes = [[0, *p[1:]] for p in GRID]

    def genlip(positions):
        table = torch.stack([embedding.get_embed([h + 1, w + 1])[-1] for _, h, w in positions])
        return as_numpy((table[:, 64:96], table[:, :32]))

    yield Case("mrope-interleaved-clamped", spec, planes, f"{TIMM} RotaryEmbeddingMRope", F32, genlip)

    preset = dict(PRESETS["qwen3-vl"]["spec"])
    section = preset.pop("mrope_section")
    axis_of_pair = [j % 3 if j % 3 and j < 3 * section[j % 3] else 0 for j in range(64)]
    preset |= {"axis_rule": "AXIS_RULE_LIST", "axis_of_pair": axis_of_pair}
    config = config_of("qwen3_vl", "Qwen3VLTextConfig", rope_parameters={"rope_type": "default", "rope_theta": 5000000.0, "mrope_section": section})
    rotary = Rotary("qwen3_vl", "Qwen3VLTextRotaryEmbedding", config)
    yield Case("axis-list", preset, TEXT, f"{packages()} Qwen3VLTextRotaryEmbedding, its axes as a list", F32, rotary.compute)


def dense():
    """Every axis turns every pair, and every head has frequencies of its own (learned; here fixed)."""
    from diffusers.models.transformers.transformer_mochi import MochiRoPE

    heads, pairs = 2, 4
    frequencies = torch.tensor([[[(7 * a + 3 * h + 2 * j + 1) / 16 for j in range(pairs)] for h in range(heads)] for a in range(3)])
    inv_freq = [float(frequencies[a, h, j]) for h in range(heads) for a in range(3) for j in range(pairs)]
    spec = {"kind": ROTARY, "family": "FREQUENCY_FAMILY_EXPLICIT", "inv_freq": inv_freq, "pairing": "PAIRING_INTERLEAVED", "head_dim": 2 * pairs}
    spec |= {"axes": 3, "axis_rule": "AXIS_RULE_DENSE", "frequency_heads": heads}
    positions = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [3, -1.5, 0.25], [20, 15.5, -23.5]]

    def compute(positions):
        cos, sin = MochiRoPE()._create_rope(frequencies, torch.tensor(positions, dtype=torch.float32))
        return as_numpy((cos.flatten(1), sin.flatten(1)))

    yield Case("dense-per-head", spec, positions, f"{DIFFUSERS} MochiRoPE", "angle = f32 einsum, cos and sin f32", compute)
    one = dict(spec, inv_freq=[float(frequencies[a, 0, j]) for a in range(3) for j in range(pairs)])
    del one["frequency_heads"]

    def first(positions):
        return tuple(t[:, :pairs] for t in compute(positions))

    yield Case("dense", one, positions, f"{DIFFUSERS} MochiRoPE", "angle = f32 einsum, cos and sin f32", first)


def pixels():
    """Frequencies for positions in [-1, 1]: equally spaced, and equally spaced in their logarithms."""
    import rotary_embedding_torch as lucidrains

    turns = {"frequency_unit": "FREQUENCY_UNIT_TURNS", "min_freq": 0.5}
    linear = {"kind": ROTARY, "family": "FREQUENCY_FAMILY_LINEAR", **turns, "max_freq": 64, "pairing": "PAIRING_INTERLEAVED", "head_dim": 32}
    embedding = lucidrains.RotaryEmbedding(32, freqs_for="pixel", max_freq=256, cache_if_possible=False)
    positions = [-1, -0.75, 0, 0.125, 0.5, 1]

    def compute(positions):
        table = embedding.forward(torch.tensor(positions, dtype=torch.float32)).detach()[:, ::2]
        return as_numpy((table.cos(), table.sin()))

    steps = "frequency = linspace f32 times pi, angle = f32 product, cos and sin f32"
    yield Case("pixel-linear", linear, positions, "rotary-embedding-torch 0.9.1 freqs_for='pixel'", steps, compute)
    logarithmic = linear | {"family": "FREQUENCY_FAMILY_LOG_RANGE", "max_freq": 56, "downscale_freq_shift": 1}
    bands = timm.pixel_freq_bands(16, 224.0, linear_bands=False)
    assert math.isclose(bands[-1], 56 * 2 * math.pi, rel_tol=1e-6)

    def compute_bands(positions):
        table = torch.tensor(positions, dtype=torch.float32)[:, None] * bands
        return as_numpy((table.cos(), table.sin()))

    yield Case("pixel-logarithmic", logarithmic, positions, f"{TIMM} pixel_freq_bands(linear_bands=False)", steps, compute_bands, tolerance=2.0**-18)


def cases():
    yield from image_models()
    yield ltx()
    for group in (vision_towers, language_models, definitions, conventions):
        yield from group()
