# SPDX-License-Identifier: Apache-2.0
"""Cases of model_types that are not read from their files: the spec that docs/models.md gives instead,
beside transformers' own class.
"""

import torch

from case import Case, preset_case
from hf import F32, Rotary, config_of, module, packages
from multi_axis import as_numpy, spec_of

GRID = [[0, 0], [1, 0], [0, 1], [3, 5], [15, 15], [31, 63]]  # columns and rows


def rotator(apply, tables):
    """`apply` of the model takes queries, keys and tables."""

    def rotate(x):
        heads = torch.from_numpy(x)[None, None]
        return apply(heads, heads, *tables())[0][0, 0].numpy()

    return rotate


def of_pairs(tables):
    """Cosines and sines of pairs, from tables that say everything twice in a row."""
    return lambda positions: as_numpy(t[0, :, ::2] for t in tables(positions))


def segmentation():
    """SAM 2 and its relatives: neighbours, the column in the first half of a head, the row in the second."""
    models = {
        "sam2_video": ("Sam2VideoConfig", "Sam2VideoVisionRotaryEmbedding", "apply_rotary_pos_emb_2d"),
        "sam3_tracker_video": ("Sam3TrackerVideoConfig", "Sam3TrackerVideoVisionRotaryEmbedding", "apply_rotary_pos_emb_2d"),
        "edgetam_video": ("EdgeTamVideoConfig", "EdgeTamVideoVisionRotaryEmbedding", "apply_rotary_pos_emb_2d_self_attn"),
        "sam3": ("Sam3ViTConfig", "Sam3ViTRotaryEmbedding", "apply_rotary_pos_emb_2d"),
    }
    for model, (config, embedding, apply) in models.items():
        rotary = getattr(module(model), embedding)(config_of(model, config))

        def tables(positions=GRID, rotary=rotary):
            return rotary(torch.zeros(1), torch.tensor(positions))

        spec = spec_of("INTERLEAVED", 4 * len(rotary.inv_freq), axes=2, axis_rule="AXIS_RULE_AXIAL")
        spec["rope_theta"] = rotary.config.rope_parameters["rope_theta"]
        rotate = rotator(getattr(module(model), apply), tables)
        yield Case(f"hf-{model.replace('_', '-')}", spec, GRID, f"{packages()} {embedding}", F32, of_pairs(tables), rotate=rotate)


def llama4_vision():
    """As SAM 2's, but positions begin at 1; the class token has 0."""
    code = module("llama4")
    config = config_of("llama4", "Llama4VisionConfig")
    side = config.image_size // config.patch_size
    table = code.Llama4VisionRotaryEmbedding(config)(torch.zeros(1))[:, 0]
    positions = [[0, 0], [1, 1], [2, 1], [1, 2], [side, 1], [3, 5], [side, side]]

    def rows(positions=positions):
        return torch.stack([table[-1 if column == 0 else (row - 1) * side + column - 1] for column, row in positions])

    def rotate(x):
        heads = torch.from_numpy(x)[None, :, None]
        return code.vision_apply_rotary_emb(heads, heads, rows()[None])[0][0, :, 0].numpy()

    width = config.hidden_size // config.num_attention_heads
    spec = spec_of("INTERLEAVED", width, axes=2, axis_rule="AXIS_RULE_AXIAL")
    spec["rope_theta"] = config.rope_parameters["rope_theta"]
    yield Case("hf-llama4-vision", spec, positions, f"{packages()} Llama4VisionRotaryEmbedding", F32, lambda p: as_numpy((rows(p).real, rows(p).imag)), rotate=rotate)


def efficient_loftr():
    """Rows and columns in turn, from 1; the heads are not split: the whole state turns."""
    code = module("efficientloftr")
    config = config_of("efficientloftr", "EfficientLoFTRConfig")
    rotary = code.EfficientLoFTRRotaryEmbedding(config)
    positions = [[1, 1], [2, 1], [1, 2], [3, 5], [15, 16]]
    size = [16 * config.q_aggregation_stride] * 2

    def tables(positions=positions):
        cos, sin = rotary(torch.zeros(1, 1, *size))
        return tuple(torch.stack([t[0, row - 1, column - 1] for row, column in positions])[None] for t in (cos, sin))

    spec = spec_of("INTERLEAVED", config.hidden_size, axes=2, axis_rule="AXIS_RULE_FREQUENCY_MAJOR")
    spec["rope_theta"] = config.rope_parameters["rope_theta"]
    yield Case("hf-efficient-loftr", spec, positions, f"{packages()} EfficientLoFTRRotaryEmbedding", F32, of_pairs(tables), rotate=rotator(code.apply_rotary_pos_emb, tables))


def patch_centres():
    """DINOv3 and its relatives: preset dinov3, at the centres of patches."""
    models = {
        "dinov3_vit": ("DINOv3ViTConfig", "DINOv3ViTRopePositionEmbedding"),
        "eomt_dinov3": ("EomtDinov3Config", "EomtDinov3RotaryEmbedding"),
        "sapiens2": ("Sapiens2Config", "Sapiens2RopePositionEmbedding"),
    }
    high, wide = 2, 4
    for model, (config, embedding) in models.items():
        config = config_of(model, config)
        rotary = getattr(module(model), embedding)(config).eval()
        head = config.hidden_size // config.num_attention_heads
        patch = config.patch_size if isinstance(config.patch_size, int) else config.patch_size[0]
        positions = [[(2 * row + 1) / high - 1, (2 * column + 1) / wide - 1] for row in range(high) for column in range(wide)]

        def tables(rotary=rotary, patch=patch):
            return rotary(torch.zeros(1, 3, high * patch, wide * patch))

        given = {"head_dim": head, "max_period": rotary.base if hasattr(rotary, "base") else config.rope_parameters["rope_theta"]}
        case = preset_case("dinov3", positions, lambda _, tables=tables, head=head: as_numpy(t[:, : head // 2] for t in tables()), F32, given)
        case.name, case.preset, case.upstream = f"hf-{model.replace('_', '-')}", "", f"{packages()} {embedding}"
        case.given = {}
        case.rotate = rotator(module(model).apply_rotary_pos_emb, tables)
        yield case


def speech_and_proteins():
    code, config = module("clvp"), config_of("clvp", "ClvpEncoderConfig")
    positions = [0, 1, 2, 17, 99]
    embedding = code.ClvpRotaryPositionalEmbedding(config)(torch.zeros(1, 100, 1))[0]
    width, head = embedding.shape[-1], config.hidden_size // config.num_attention_heads

    def rotate(x):
        heads = torch.from_numpy(x)[None, None]
        turned = code.apply_rotary_pos_emb(*[heads[..., :width]] * 3, embedding.cos(), embedding.sin(), torch.tensor([positions]))[0]
        return torch.cat((turned, heads[..., width:]), dim=-1)[0, 0].numpy()

    def compute(positions):
        return as_numpy(t[positions, : width // 2] for t in (embedding.cos(), embedding.sin()))

    yield Case("hf-clvp", spec_of("HALF_SPLIT", head, rotary_dim=width), positions, f"{packages()} ClvpRotaryPositionalEmbedding", F32, compute, rotate=rotate)

    code, config = module("esmfold2"), config_of("esmfold2", "EsmFold2AtomEncoderConfig")
    rotary = code.EsmFold2RotaryEmbedding(config)
    atoms = [[0, 0, 0, 0], [1.5, 0, 0, 0], [0, -2.25, 0, 0], [0, 0, 12.75, 0], [0, 0, 0, 7], [-3.5, 20.125, 0.5, 99]]

    def tables(atoms=atoms):
        at = torch.tensor(atoms)
        return rotary(at[None, :, :3], at[None, :, 3], torch.float32)

    widths = [2 * config.num_spatial_rope_pairs_per_axis] * 3 + [2 * config.num_uid_rope_pairs]
    assert sum(widths) == config.head_dim
    spec = spec_of("HALF_SPLIT", config.head_dim, axes=4, axes_dim=widths, axis_rule="AXIS_RULE_AXIAL")
    spec["axes_theta"] = [config.spatial_rope_base_frequency] * 3 + [config.uid_rope_base_frequency]
    del spec["rope_theta"]

    def compute_atoms(atoms):
        return as_numpy(t[0, :, : config.head_dim // 2] for t in tables(atoms))

    yield Case("hf-esmfold2-atoms", spec, atoms, f"{packages()} EsmFold2RotaryEmbedding", F32, compute_atoms, rotate=rotator(code.apply_rotary_pos_emb, tables))

    saprot = Rotary("evolla", "EvollaSaProtRotaryEmbedding", config_of("evolla", "SaProtConfig"))
    case = preset_case("esm-2", positions, saprot.compute, F32, rotate=saprot.rotator(positions), upstream=f"{packages()} EvollaSaProtRotaryEmbedding")
    case.name, case.preset = "hf-evolla-saprot", ""
    yield case


def kinds_of_layers():
    """A spec for each kind of layers, with the values of its rope_parameters."""
    section = [24, 20, 20]
    parameters = {"full_attention": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": section}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": section}}
    config = config_of("cohere_compass", "CohereCompassTextConfig", head_dim=128, rope_parameters=parameters, num_hidden_layers=2, layer_types=list(parameters))
    positions = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [5, 6, 7], [4097, 30, 40]]
    for kind, own in parameters.items():
        rotary = Rotary("cohere_compass", "CohereCompassRotaryEmbedding", config, layer_type=kind)
        spec = spec_of("HALF_SPLIT", 128, axes=3, axis_rule="AXIS_RULE_MROPE_INTERLEAVED", mrope_section=section)
        spec["rope_theta"] = own["rope_theta"]
        name = f"hf-cohere-compass-{kind.removesuffix('_attention')}"
        yield Case(name, spec, positions, f"{packages()} CohereCompassRotaryEmbedding", F32, rotary.compute, rotate=rotary.rotator(positions))

    config = config_of("dots3_note", "Dots3NoteTextConfig")
    positions = [0, 1, 2, 17, 4097]
    for kind in sorted(set(config.layer_types)):
        rotary = Rotary("dots3_note", "Dots3NoteTextRotaryEmbedding", config, layer_type=kind, apply="apply_rotary_pos_emb_interleave")
        spec = spec_of("INTERLEAVED", 2 * len(rotary.frequencies()), pairing_out="PAIRING_HALF_SPLIT")
        spec["rope_theta"] = config.rope_parameters[kind]["rope_theta"]
        name = f"hf-dots3-note-{kind.removesuffix('_attention')}"
        yield Case(name, spec, positions, f"{packages()} Dots3NoteTextRotaryEmbedding", F32, rotary.compute, rotate=rotary.rotator(positions))


def cases():
    for group in (segmentation, llama4_vision, efficient_loftr, patch_centres, speech_and_proteins, kinds_of_layers):
        yield from group()
