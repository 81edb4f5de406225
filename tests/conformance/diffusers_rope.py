# SPDX-License-Identifier: Apache-2.0
"""Cases of the rotations over several axes of diffusers that the other families do not run: walk.py
says which ones are left. Classes that do the same share a case, which fails unless they return the
same numbers."""

import types

import numpy as np
import torch
from diffusers.models import embeddings
from diffusers.models.autoencoders import autoencoder_kl_minimax_h3, ltx2_diffusion_decoder
from diffusers.models.controlnets import controlnet_z_image
from diffusers.models.transformers import (
    transformer_anyflow,
    transformer_anyflow_far,
    transformer_bria,
    transformer_bria_fibo2,
    transformer_chronoedit,
    transformer_cogview4,
    transformer_cosmos3,
    transformer_easyanimate,
    transformer_flux3,
    transformer_glm_image,
    transformer_helios,
    transformer_hidream_image,
    transformer_hunyuan_video15,
    transformer_hunyuan_video_framepack,
    transformer_hunyuanimage,
    transformer_ideogram4,
    transformer_joyimage,
    transformer_joyimage_edit_plus,
    transformer_kandinsky6,
    transformer_kandinsky6_sr,
    transformer_krea2,
    transformer_longcat_image,
    transformer_minimax_h3,
    transformer_motif_video,
    transformer_nucleusmoe_image,
    transformer_ovis_image,
    transformer_prx,
    transformer_qwenimage,
    transformer_qwenimage21,
    transformer_sana_video,
    transformer_sana_wm,
    transformer_skyreels_v2,
    transformer_wan,
    transformer_wan_animate,
    transformer_wan_animate_2,
)

from case import Case
from multi_axis import DIFFUSERS, GRID, as_numpy, complex_rotator, diffusers_rotator, last_row, repeated, spec_of

F32 = "frequency, angle, cos and sin f32"
F64 = "frequency and angle f64, cos and sin rounded to f32"


def alike(*functions, apart=0.0):
    """A function that runs all of them, and fails unless they agree."""

    def one(*arguments):
        results = [np.asarray(function(*arguments), np.float32) for function in functions]
        for function, result in zip(functions, results, strict=True):
            difference = float(np.max(np.abs(result - results[0])))
            assert result.shape == results[0].shape and difference <= apart, (function, result.shape, difference)
        return results[0]

    return one


def axial(pairing, *axes_dim, **fields):
    return spec_of(pairing, sum(axes_dim), axes=len(axes_dim), axes_dim=list(axes_dim), axis_rule="AXIS_RULE_AXIAL", **fields)


def case(name, spec, positions, upstream, arithmetic, compute, rotate=None, **more):
    return Case(f"diffusers-{name}", spec, positions, f"{DIFFUSERS} {upstream}", arithmetic, compute, rotate=rotate, **more)


def complex_pair(table):
    table = table.reshape(-1, table.shape[-1])
    return np.stack([table.real.numpy(), table.imag.numpy()])


def matrices(table):
    """Rows of 2 by 2 matrices."""
    table = table.reshape(-1, table.shape[-3], 2, 2)
    return as_numpy((table[..., 0, 0], table[..., 1, 0]))


def halves(tables):
    """Tables of half-split pairs say everything twice, one half after the other."""
    tables = [t.reshape(-1, t.shape[-1]) for t in tables]
    return np.stack(as_numpy(t[:, : t.shape[-1] // 2] for t in tables))


def by_ids():
    spec = axial("INTERLEAVED", 4, 6, 6)
    classes = [
        embeddings.FluxPosEmbed,
        transformer_bria.BriaPosEmbed,
        transformer_flux3.Flux3PosEmbed,
        transformer_krea2.Krea2RotaryPosEmbed,
        transformer_longcat_image.LongCatImagePosEmbed,
        transformer_ovis_image.OvisImagePosEmbed,
    ]
    compute = alike(*(lambda p, c=c: repeated(c(10000, [4, 6, 6])(torch.tensor(p))) for c in classes))
    rotate = diffusers_rotator(lambda: classes[1](10000, [4, 6, 6])(torch.tensor(GRID)))
    yield case("ids", spec, GRID, ", ".join(c.__name__ for c in classes), F64, compute, rotate)

    ranges = {"axes_dims": [4, 6, 6], "axes_lens": [32, 64, 128]}
    z = [m.RopeEmbedder(theta=256.0, **ranges) for m in (controlnet_z_image, transformer_bria_fibo2)]
    compute = alike(*(lambda p, t=t: complex_pair(t(torch.tensor(p))) for t in z))
    spec = axial("INTERLEAVED", 4, 6, 6, rope_theta=256)
    yield case("z-image-copies", spec, GRID, "RopeEmbedder of controlnet_z_image.py and transformer_bria_fibo2.py", F64, compute)


def wan_tables():
    head, patch = 20, (1, 1, 1)
    whole = [
        transformer_wan.WanRotaryPosEmbed,
        transformer_wan_animate.WanRotaryPosEmbed,
        transformer_sana_video.WanRotaryPosEmbed,
        transformer_skyreels_v2.SkyReelsV2RotaryPosEmbed,
    ]
    real = [last_row(lambda size, c=cls(head, patch, 1024): c(torch.empty(1, 1, *size))) for cls in whole]
    edit = transformer_chronoedit.ChronoEditRotaryPosEmbed(head, patch, 1024)

    def edited(size):
        """Of two frames, the second is at position 7: three are asked for."""
        return tuple(t[:, : size[0] * size[1] * size[2]] for t in edit(torch.empty(1, 1, max(size[0], 3), *size[1:])))

    real.append(last_row(edited))
    motif = transformer_motif_video.MotifVideoRotaryPosEmbed(1, 1, [8, 6, 6], theta=10000.0)
    real.append(last_row(lambda size: motif(torch.empty(1, 1, *size))))
    flow = transformer_anyflow.AnyFlowRotaryPosEmbed(head, patch, 1024)
    far = transformer_anyflow_far.AnyFlowCausalRotaryPosEmbed(head, patch, (1, 2, 2), 1024)

    def flow_table(positions):
        layout = [{"total_frames": t + 1, "full_frame_shape": (h + 1, w + 1)} for t, h, w in positions]
        return torch.stack([flow(one, torch.device("cpu"))["query"][0, 0, -1] for one in layout])

    def far_table(positions):
        more = {"compressed_frame_shape": (1, 1), "num_compressed_frames": 0}
        layout = [{"total_frames": t + 1, "full_frame_shape": (h + 1, w + 1)} | more for t, h, w in positions]
        return torch.stack([far(one, torch.device("cpu"))["query"][0, 0, -1] for one in layout])

    def animate_table(positions):
        axes = [transformer_wan_animate_2.rope_params(1024, d) for d in (8, 6, 6)]
        return torch.stack([torch.cat([axis[c] for axis, c in zip(axes, position)]) for position in positions])

    def flow_rotate(x):
        return transformer_anyflow.apply_rotary_emb(torch.from_numpy(x)[None, None], flow_table(GRID)[None, None])[0, 0].numpy()

    def far_rotate(x):
        return transformer_anyflow_far.apply_rotary_emb(torch.from_numpy(x)[None, None], far_table(GRID)[None, None])[0, 0].numpy()

    def animate_rotate(x):
        table = torch.cat([transformer_wan_animate_2.rope_params(1024, d) for d in (8, 6, 6)], dim=1)
        out = []
        for lanes, position in zip(torch.from_numpy(x), GRID, strict=True):
            size = torch.tensor([[c + 1 for c in position]])
            tokens = lanes.expand(1, int(size.prod()), 1, head)
            out.append(transformer_wan_animate_2.rope_apply(tokens, size, table)[0, -1, 0])
        return torch.stack(out).numpy()

    compute = alike(
        *(lambda p, t=t: repeated(t(p)) for t in real),
        *(lambda p, t=t: complex_pair(t(p)) for t in (flow_table, far_table, animate_table)),
        apart=2.0**-24,
    )
    names = ", ".join(c.__name__ for c in whole) + ", ChronoEditRotaryPosEmbed, AnyFlowRotaryPosEmbed, AnyFlowCausalRotaryPosEmbed, MotifVideoRotaryPosEmbed, wan_animate_2 rope_params"
    yield case("wan-copies", axial("INTERLEAVED", 8, 6, 6), GRID, names, F64, compute, alike(flow_rotate, far_rotate, animate_rotate, apart=2.0**-22))
    # A compressed frame is the average of its patches' turns: the turn at their middle.
    pooled = transformer_anyflow_far.AnyFlowCausalRotaryPosEmbed(head, patch, (1, 2, 2), 1024)
    positions = [[t, 2 * h + 0.5, 2 * w + 0.5] for t, h, w in ([0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [3, 7, 9], [20, 30, 33])]

    def compressed(positions):
        rows = []
        for t, h, w in positions:
            size = (int(h // 2) + 1, int(w // 2) + 1)
            layout = {"total_frames": int(t) + 1, "full_frame_shape": (1, 1), "compressed_frame_shape": size, "num_compressed_frames": int(t) + 1}
            rows.append(pooled(layout, torch.device("cpu"))["query"][0, 0, -1])
        return complex_pair(torch.stack(rows))

    steps = "frequency and angle f64, complex numbers averaged and divided by their length"
    yield case("compressed-frames", axial("INTERLEAVED", 8, 6, 6), positions, "AnyFlowCausalRotaryPosEmbed", steps, compressed)


def grids():
    dims, spec = [4, 6, 6], axial("INTERLEAVED", 4, 6, 6)
    video = transformer_hunyuan_video15.HunyuanVideo15RotaryPosEmbed(1, 1, dims, theta=10000.0)
    image = transformer_hunyuanimage.HunyuanImageRotaryPosEmbed([1, 1, 1], dims, theta=10000.0)
    pack = transformer_hunyuan_video_framepack.HunyuanVideoFramepackRotaryPosEmbed(1, 1, dims, theta=10000.0)
    helios = transformer_helios.HeliosRotaryPosEmbed(dims, 10000.0)
    joy = types.SimpleNamespace(hidden_size=16, num_attention_heads=1, rope_dim_list=dims, theta=10000)

    def helios_rows(positions):
        rows = [helios(torch.tensor([[t]]), h + 1, w + 1, torch.device("cpu"))[0, :, 0, -1, -1] for t, h, w in positions]
        return torch.stack(rows)  # [positions, cosines twice, sines twice]

    def joyimage(model):
        return last_row(lambda size: model.get_rotary_pos_embed(joy, size)[0])

    edit = transformer_joyimage_edit_plus.JoyImageEditPlusTransformer3DModel
    real = [last_row(lambda size, t=t: t(torch.empty(1, 1, *size))) for t in (video, image)]
    real.append(last_row(lambda size: pack(torch.arange(size[0]), *size[1:], torch.device("cpu"))))
    real += [joyimage(transformer_joyimage.JoyImageEditTransformer3DModel), lambda p: helios_rows(p).chunk(2, -1)]
    real.append(lambda p: plus_tables(edit, joy, p))
    compute = alike(*(lambda p, t=t: repeated(t(p)) for t in real), apart=2.0**-22)

    def tables():
        return tuple(torch.from_numpy(np.repeat(np.asarray(t), 2, -1)) for t in compute(GRID))

    def joy_rotate(x):
        q = torch.from_numpy(x)[None, :, None]
        return transformer_joyimage._apply_rotary_emb(q, q, tables())[0][0, :, 0].numpy()

    def plus_rotate(x):
        q = torch.from_numpy(x)[None, :, None]
        return transformer_joyimage_edit_plus._apply_rotary_emb_batched(q, q, tuple(t[None] for t in tables()))[0][0, :, 0].numpy()

    def helios_rotate(x):
        return transformer_helios.apply_rotary_emb_transposed(torch.from_numpy(x)[None, :, None], helios_rows(GRID)[None])[0, :, 0].numpy()

    names = "HunyuanVideo15RotaryPosEmbed, HunyuanImageRotaryPosEmbed, HunyuanVideoFramepackRotaryPosEmbed, HeliosRotaryPosEmbed, JoyImageEditTransformer3DModel"
    yield case("grids", spec, GRID, names, F32, compute, alike(joy_rotate, plus_rotate, helios_rotate, apart=2.0**-16))
    yield vae()
    yield easy_animate()
    yield plane()


def plus_tables(model, joy, positions):
    """The model that edits several images makes tables of parts of the grid."""
    rows = [model._get_rotary_pos_embed_for_range(types.SimpleNamespace(config=joy), p, [c + 1 for c in p]) for p in positions]
    return tuple(torch.cat([row[i] for row in rows]) for i in (0, 1))


def vae():
    rope = ltx2_diffusion_decoder.LTX2VideoVaeRotaryPosEmbed3D(32)
    positions = [p for p in GRID if max(p) < 64]

    def turned(lanes, position):
        return rope(lanes.expand(1, *(c + 1 for c in position), 1, 32))[0, -1, -1, -1, 0]

    def compute(positions):
        units = torch.tensor([1.0, 0.0]).repeat(16)
        rows = torch.stack([turned(units, p) for p in positions])
        return as_numpy((rows[:, ::2], rows[:, 1::2]))

    def rotate(x):
        return torch.stack([turned(lanes, p) for lanes, p in zip(torch.from_numpy(x), positions, strict=True)]).numpy()

    steps = "frequency f64 rounded to f32, angle, cos and sin f32"
    return case("ltx-2-vae", axial("INTERLEAVED", 8, 12, 12), positions, "LTX2VideoVaeRotaryPosEmbed3D", steps, compute, rotate)


def easy_animate():
    """Patches of any image are spread over a base size of 90 by 60: the positions are fractions."""
    rope = transformer_easyanimate.EasyAnimateRotaryPosEmbed(1, 64)
    height, width = 8, 16
    (top, left), (bottom, right) = rope.get_resize_crop_region_for_grid((height, width), 90, 60)
    picked = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 7, 15), (20, 3, 9)]

    def place(first, last, i, n):
        return float(np.linspace(np.float32(first), np.float32(last * (n - 1) / n), n, dtype=np.float32)[i])

    positions = [[t, place(top, bottom, h, height), place(left, right, w, width)] for t, h, w in picked]

    def compute(_):
        cos, sin = (t.reshape(21, height, width, 64) for t in rope(torch.empty(1, 1, 21, height, width)))
        return repeated(torch.stack([t[at] for at in picked]) for t in (cos, sin))

    return case("easyanimate", axial("INTERLEAVED", 16, 24, 24), positions, "EasyAnimateRotaryPosEmbed", F32, compute)


def plane():
    """(column, row), both from linspace."""
    positions = [[0, 0], [0.75, 0], [0, 0.75], [2.25, 1.5]]

    def tables():
        cos, sin = embeddings.get_2d_rotary_pos_embed(16, ((0, 0), (3, 3)), (4, 4))
        rows = [0, 1, 4, 2 * 4 + 3]
        return cos[rows], sin[rows]

    return case("plane", axial("INTERLEAVED", 8, 8), positions, "get_2d_rotary_pos_embed", F32, lambda _: repeated(tables()), diffusers_rotator(tables))


def half_split_axes():
    spec = axial("HALF_SPLIT", 16, 16)
    glm = transformer_glm_image.GlmImageRotaryPosEmbed(32, 1)
    cogview = transformer_cogview4.CogView4RotaryPosEmbed(32, 1, (64, 128))
    positions = [[0, 0], [1, 0], [0, 1], [17, 40], [63, 127]]
    of_glm = last_row(lambda size: glm(torch.empty(1, 1, *size)))
    whole = cogview(torch.empty(1, 1, 64, 128))

    def of_cogview(positions):
        cogview(torch.empty(1, 1, 64, 128))
        return tuple(torch.stack([t[h * 128 + w] for h, w in positions]) for t in whole)

    compute = alike(lambda p: halves(of_glm(p)), lambda p: halves(of_cogview(p)))
    rotate = diffusers_rotator(lambda: of_glm(positions), unbind=-2)
    yield case("glm-image", spec, positions, "GlmImageRotaryPosEmbed, CogView4RotaryPosEmbed", F32, compute, rotate)

    h3 = transformer_minimax_h3.MiniMaxH3RotaryPosEmbed(4)
    ids = torch.tensor(GRID).T[None]
    spec = axial("HALF_SPLIT", 8, 8, 8) | {"head_dim": 32, "rotary_dim": 24}

    def h3_rotate(x):
        cos, sin = (t[0] for t in h3(ids))
        return transformer_minimax_h3._apply_rotary_emb(torch.from_numpy(x)[None, :, None], cos, sin)[0, :, 0].numpy()

    yield case("minimax-h3", spec, GRID, "MiniMaxH3RotaryPosEmbed", F32, lambda _: halves(h3(ids)), h3_rotate)
    video = autoencoder_kl_minimax_h3.MiniMaxH3VideoRotaryPosEmbed(24)
    spec = axial("HALF_SPLIT", 8, 8, 8, rope_theta=100, position_scale=2 * np.pi)
    points = [[0, 0, 0], [0.5, 0, 0], [0, 0.25, 0], [0, 0, 0.125], [-0.75, 0.375, 0.9375], [1, -1, 1]]

    def video_tables(_):
        return halves(t[0] for t in video(torch.tensor(points)[None]))

    yield case("minimax-h3-video", spec, points, "MiniMaxH3VideoRotaryPosEmbed", F32, video_tables)


def interleaved_sections():
    section, base = [12, 10, 10], 10000.0
    ideogram = transformer_ideogram4.Ideogram4MRoPE(64, base, section)
    cosmos = transformer_cosmos3.Cosmos3VLTextRotaryEmbedding(64, base, section)

    def of_cosmos(p):
        return cosmos(torch.tensor(p).T[:, None], torch.device("cpu"), torch.float32)

    compute = alike(lambda p: halves(ideogram(torch.tensor(p)[None])), lambda p: halves(of_cosmos(p)))
    spec = spec_of("HALF_SPLIT", 64, axes=3, axis_rule="AXIS_RULE_MROPE_INTERLEAVED", mrope_section=section)
    yield case("sections", spec, GRID, "Ideogram4MRoPE, Cosmos3VLTextRotaryEmbedding", F32, compute)


def frames_and_signs():
    """Qwen-Image's relatives: rows and columns count from the centre; a condition is frame -1."""
    dims = [8, 12, 12]
    nucleus = transformer_nucleusmoe_image.NucleusMoEEmbedRope(10000, dims, scale_rope=True)
    layers = transformer_qwenimage.QwenEmbedLayer3DRope(10000, dims, scale_rope=True)
    newest = transformer_qwenimage21.QwenImage21Rope(10000, dims)
    positions = [[0, -2, -3], [0, 1, 2], [0, 0, 0], [-1, -2, -3], [-1, 1, -1], [40, 40, 40]]

    def grid(p, rows):  # of 4 rows and 6 columns, centred
        return rows.reshape(4, 6, -1)[p[1] + 2, p[2] + 3]

    def of_layers(p):
        image, text = layers([[(1, 4, 6), (1, 4, 6)]], 64)
        blocks = {0: image[:24], -1: image[24:]}
        return text[p[0] - 3] if p[0] > 0 else grid(p, blocks[p[0]])

    def of_nucleus(p):
        image, text = nucleus((1, 4, 6), max_txt_seq_len=64)
        return text[p[0] - 3] if p[0] > 0 else grid(p, image) if p[0] == 0 else of_layers(p)

    def of_newest(p):
        mask = torch.zeros(24 + 64, dtype=torch.bool)
        mask[:24] = True
        rows = newest([(1, 4, 6)], mask, torch.device("cpu"))
        return rows[24 + p[0] - 6] if p[0] > 0 else grid(p, rows[:24]) if p[0] == 0 else of_layers(p)

    def table(function):
        return torch.stack([function(p) for p in positions])

    compute = alike(*(lambda _, f=f: complex_pair(table(f)) for f in (of_layers, of_nucleus, of_newest)))

    def by(apply):
        return lambda x: apply(torch.from_numpy(x)[None, :, None], table(of_layers), use_real=False)[0, :, 0].numpy()

    functions = (transformer_qwenimage.apply_rotary_emb_qwen, transformer_qwenimage21.apply_rotary_emb_qwen)
    rotate = alike(*(by(f) for f in functions), by(transformer_nucleusmoe_image._apply_rotary_emb_nucleus))
    names = "QwenEmbedLayer3DRope, NucleusMoEEmbedRope, QwenImage21Rope"
    yield case("centred", axial("INTERLEAVED", *dims), positions, names, "frequency, angle f32, complex64 table", compute, rotate)


def matrix_tables():
    dims, spec = [4, 6, 6], axial("INTERLEAVED", 4, 6, 6)
    six = (transformer_kandinsky6.Kandinsky6RoPE3D, transformer_kandinsky6_sr.Kandinsky6SRRoPE3D)

    def of_six(cls, positions):
        rope = cls(dims)
        return torch.stack([rope([torch.tensor([c]) for c in p]).reshape(-1, 2, 2) for p in positions])

    compute = alike(*(lambda p, c=c: matrices(of_six(c, p)) for c in six))
    applied = (transformer_kandinsky6.apply_rotary, transformer_kandinsky6_sr.apply_rotary)
    rotate = alike(*(lambda x, f=f: f(torch.from_numpy(x), of_six(six[0], GRID)).numpy() for f in applied))
    yield case("kandinsky-6", spec, GRID, "Kandinsky6RoPE3D, Kandinsky6SRRoPE3D", "frequency = exp f32, angle f32, matrices f32", compute, rotate)

    prx = transformer_prx.PRXEmbedND(16, 10000, dims)
    dream = transformer_hidream_image.HiDreamImageEmbedND(10000, dims)

    def table(embed):
        return embed(torch.tensor(GRID).float()[None]).reshape(len(GRID), 8, 2, 2)

    def prx_rotate(x):
        return transformer_prx.apply_rope(torch.from_numpy(x), table(prx)).numpy()

    def dream_rotate(x):
        q = torch.from_numpy(x)
        return transformer_hidream_image.apply_rope(q, q, table(dream))[0].numpy()

    compute = alike(lambda _: matrices(table(prx)), lambda _: matrices(table(dream)), apart=2.0**-24)
    yield case("matrices", spec, GRID, "PRXEmbedND, HiDreamImageEmbedND", "frequency and angle f64, matrices f32", compute, alike(prx_rotate, dream_rotate, apart=2.0**-22))


def slices():
    """Cameras of Sana WM turn with the fastest frequencies of every axis of wider heads."""
    head, narrow = 40, 20
    rope = transformer_sana_wm.SanaWMRotaryPosEmbed(head, (1, 1, 1), 1024)

    def whole(positions):
        return torch.stack([rope([c + 1 for c in p])[0, 0, -1] for p in positions])

    def table(positions):
        return transformer_sana_wm._slice_rope_for_cam(whole(positions), head, narrow)

    def rotate(x):
        q = torch.from_numpy(x).T[None, None]  # [batch, heads, lanes, tokens]
        return transformer_sana_wm._apply_rotary_emb(q, table(GRID)[None, None])[0, 0].T.numpy()

    widths, kept = (16, 12, 12), (4, 3, 3)
    frequencies = [10000.0 ** (-2 * j / width) for width, n in zip(widths, kept) for j in range(n)]
    axes = [axis for axis, n in enumerate(kept) for _ in range(n)]
    spec = {"kind": "SPEC_KIND_ROTARY", "family": "FREQUENCY_FAMILY_EXPLICIT", "inv_freq": frequencies, "pairing": "PAIRING_INTERLEAVED"}
    spec |= {"head_dim": narrow, "axes": 3, "axis_rule": "AXIS_RULE_LIST", "axis_of_pair": axes}
    steps = "frequency, angle f32, complex64 table"
    yield case("sana-wm-cameras", spec, GRID, "_slice_rope_for_cam of SanaWMRotaryPosEmbed", steps, lambda p: complex_pair(table(p)), rotate)
    yield case("sana-wm", axial("INTERLEAVED", *widths), GRID, "SanaWMRotaryPosEmbed", steps, lambda p: complex_pair(whole(p)), complex_rotator(lambda: whole(GRID)))


def cases():
    for group in (by_ids, wan_tables, grids, half_split_axes, interleaved_sections, frames_and_signs, matrix_tables, slices):
        yield from group()
