# SPDX-License-Identifier: Apache-2.0
"""parity.py [FILE]: computes what upstream packages return, with their rounding, for specs with
PRECISION_PARITY.

Tables and rotations are in the types that models use, with all digits.
tests/conformance/parity_test.cc compares with them: frequencies and tables within 1 ulp, because
they come from a libm; rotations bit for bit.
"""

import json
import pathlib
import sys
from types import SimpleNamespace

import numpy as np
import torch

from hf import module
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

GOLDEN = pathlib.Path(__file__).parent / "golden" / "parity" / "parity.json"
F32, BF16, F16, F64 = torch.float32, torch.bfloat16, torch.float16, torch.float64
NAMES = {F32: "FLOAT32", BF16: "BFLOAT16", F16: "FLOAT16", F64: "FLOAT64"}
TRANSFORMERS = {"frequency": "PARITY_FREQUENCY_FLOAT32_POW", "angle": "PARITY_TYPE_FLOAT32", "table": "PARITY_TYPE_MODEL", "math": "PARITY_TYPE_MODEL"}


def steps(frequency, angle, table, math=None, **more):
    block = {"frequency": f"PARITY_FREQUENCY_{frequency}", "angle": f"PARITY_TYPE_{angle}", "table": f"PARITY_TYPE_{table}"}
    if math:
        block["math"] = f"PARITY_TYPE_{math}"
    return block | {key: f"PARITY_TYPE_{value}" for key, value in more.items()}


def numbers(tensor):
    return [float(f"{v:.17g}" if tensor.dtype == F64 else f"{v:.9g}") for v in tensor.double().flatten().tolist()]


def rotary_spec(head, theta, parity, pairing="HALF_SPLIT", **more):
    spec = {"kind": "SPEC_KIND_ROTARY", "head_dim": head, "family": "FREQUENCY_FAMILY_GEOMETRIC", "rope_theta": theta}
    return spec | {"pairing": f"PAIRING_{pairing}", "precision": "PRECISION_PARITY", "parity": parity} | more


def encoding_spec(dim, parity, order="SIN_COS", arrangement="CONCATENATED", **more):
    spec = {"kind": "SPEC_KIND_ENCODING", "dim": dim, "family": "FREQUENCY_FAMILY_GEOMETRIC", "rope_theta": 10000}
    spec |= {"order": f"TRIG_ORDER_{order}", "arrangement": f"ARRANGEMENT_{arrangement}"}
    return spec | {"precision": "PRECISION_PARITY", "parity": parity} | more


def vectors(rows, width, dtype):
    generator = torch.Generator().manual_seed(width + rows)
    return torch.randn(rows, width, generator=generator).to(dtype)


def rotary_case(name, upstream, spec, positions, dtype, inv_freq, cos, sin, rotate, factor=1.0):
    """cos and sin: [positions, pairs]; rotate: [positions, head_dim] -> the same."""
    x = vectors(len(positions), spec["head_dim"], dtype)
    return {
        "name": name,
        "upstream": upstream,
        "spec": spec,
        "positions": [list(p) if isinstance(p, (list, tuple)) else [p] for p in positions],
        "dtype": NAMES[dtype],
        "inv_freq": numbers(inv_freq),
        "attention_factor": factor,
        "cos": numbers(cos),
        "sin": numbers(sin),
        "x": numbers(x),
        "y": numbers(rotate(x)),
    }


def encoding_case(name, upstream, spec, positions, dtype, inv_freq, rows):
    return {
        "name": name,
        "upstream": upstream,
        "spec": spec,
        "positions": [list(p) if isinstance(p, (list, tuple)) else [p] for p in positions],
        "dtype": NAMES[dtype],
        "inv_freq": numbers(inv_freq),
        "rows": numbers(rows),
    }


def inverse_frequencies(head, theta, rope_type, length=None, context=None, **parameters):
    rope = {"rope_type": rope_type, "rope_theta": float(theta), **parameters}
    config = SimpleNamespace(
        rope_parameters=rope,
        head_dim=head,
        hidden_size=head,
        num_attention_heads=1,
        max_position_embeddings=context,
        standardize_rope_params=lambda: None,
    )
    if rope_type == "default":
        return 1.0 / (float(theta) ** (torch.arange(0, head, 2, dtype=F32) / head)), 1.0
    return ROPE_INIT_FUNCTIONS[rope_type](config, None, seq_len=length)


def llama_like(name, head, theta, rule, positions, dtype=BF16, length=None, context=None, more=None, model="llama", parity=TRANSFORMERS):
    """transformers' LlamaRotaryEmbedding.forward and apply_rotary_pos_emb."""
    rope_type, parameters = rule
    inv_freq, factor = inverse_frequencies(head, theta, rope_type, length, context, **parameters)
    angles = torch.tensor(positions)[:, None].float() * inv_freq
    repeated = model == "cohere"
    emb = torch.repeat_interleave(angles, 2, -1) if repeated else torch.cat((angles, angles), -1)
    cos, sin = (emb.cos() * factor).to(dtype), (emb.sin() * factor).to(dtype)

    def rotate(x):
        q = x[None, None]
        return module(model).apply_rotary_pos_emb(q, q, cos[None], sin[None])[0][0, 0]

    pick = (lambda t: t[:, ::2]) if repeated else (lambda t: t[:, : head // 2])
    spec = rotary_spec(head, theta, parity, "INTERLEAVED" if repeated else "HALF_SPLIT", **(more or {}))
    upstream = f"transformers modeling_{model}.py, rope type {rope_type}"
    return rotary_case(name, upstream, spec, positions, dtype, inv_freq, pick(cos), pick(sin), rotate, float(factor))


def transformers_cases():
    near, far = [0, 1, 2, 7, 1023, 4095], [1, 8191, 8192, 100003, 131071]
    yield llama_like("llama-2", 128, 10000.0, ("default", {}), near)
    yield llama_like("llama-2-f16", 128, 10000.0, ("default", {}), near, F16)
    yield llama_like("llama-2-f32", 128, 10000.0, ("default", {}), near, F32)
    rule = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    yield llama_like("llama-3.1", 128, 500000.0, ("llama3", rule), far, more={"rope_scaling": {"llama3": rule}})
    rule = {"factor": 4.0, "original_max_position_embeddings": 32768}
    yield llama_like("qwen-yarn", 128, 1000000.0, ("yarn", rule), far, more={"rope_scaling": {"yarn": rule}})
    rule = {"factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}
    yield llama_like("gpt-oss-yarn", 64, 150000.0, ("yarn", rule), far, more={"rope_scaling": {"yarn": rule}})
    yield llama_like("linear", 64, 10000.0, ("linear", {"factor": 3.0}), near, more={"rope_scaling": {"linear": {"factor": 3.0}}})
    for length in (4096, 4097):
        rule = {"short_factor": [1 + 0.01 * j for j in range(48)], "long_factor": [1 + 0.37 * j for j in range(48)]}
        rule |= {"original_max_position_embeddings": 4096, "factor": 32.0}
        more = {"rope_scaling": {"longrope": rule}, "sequence_length": length}
        yield llama_like(f"longrope-{length}", 96, 10000.0, ("longrope", rule), near, length=length, more=more)
    rule = {"factor": 2.0, "dynamic": True, "original_max_position_embeddings": 2048}
    more = {"rope_scaling": {"ntk": rule}, "sequence_length": 5000}
    length = torch.tensor(5000)
    yield llama_like("dynamic-ntk", 64, 10000.0, ("dynamic", {"factor": 2.0}), near, length=length, context=2048, more=more)
    yield llama_like("cohere", 64, 10000.0, ("default", {}), near, model="cohere", parity=steps("FLOAT32_POW", "FLOAT32", "MODEL", "FLOAT32"))
    proportional = {"partial_rotary_factor": 0.25}
    yield llama_like("gemma-4-global", 128, 1000000.0, ("proportional", proportional), far, more={"live_pairs": 16})
    yield cast_inv_freq()
    yield deepseek()
    yield gpt_j()


def cast_inv_freq():
    inv_freq = inverse_frequencies(64, 10000.0, "default")[0].to(BF16).float()
    positions = [0, 1, 2, 7, 1023]
    angles = torch.tensor(positions)[:, None].float() * inv_freq
    cos, sin = angles.cos().to(BF16), angles.sin().to(BF16)
    both = [torch.cat((t, t), -1)[None] for t in (cos, sin)]
    spec = rotary_spec(64, 10000.0, steps("FLOAT32_POW", "FLOAT32", "MODEL", "FLOAT32", frequency_storage="BFLOAT16"))

    def rotate(x):
        return module("esm").apply_rotary_pos_emb(x[None, None], x[None, None], *both)[0][0, 0]

    return rotary_case("esm-cast", "transformers modeling_esm.py, its inv_freq buffer cast to bf16", spec, positions, BF16, inv_freq, cos, sin, rotate)


def deepseek():
    positions = [0, 1, 2, 7, 1023, 4095]
    inv_freq = inverse_frequencies(64, 10000.0, "default")[0]
    angles = torch.tensor(positions)[:, None].float() * inv_freq
    cos, sin = angles.cos().to(BF16), angles.sin().to(BF16)
    both = [torch.cat((t, t), -1)[None] for t in (cos, sin)]
    spec = rotary_spec(64, 10000.0, TRANSFORMERS, "INTERLEAVED", pairing_out="PAIRING_HALF_SPLIT")

    def rotate(x):
        apply = module("deepseek_v3").apply_rotary_pos_emb_interleave
        return apply(x[None, None], x[None, None], *both)[0][0, 0]

    return rotary_case("deepseek-v3", "transformers apply_rotary_pos_emb_interleave", spec, positions, BF16, inv_freq, cos, sin, rotate)


def gpt_j():
    gptj = module("gptj")
    positions = [0, 1, 2, 7, 1023, 2047]
    sin, cos = gptj.create_sinusoidal_positions(2048, 64)[positions].chunk(2, -1)
    inv_freq = 1.0 / (10000 ** (torch.arange(0, 64, 2, dtype=torch.int64) / 64))

    def rotate(x):
        return gptj.apply_rotary_pos_emb(x[None, :, None], sin[None], cos[None])[0, :, 0].to(BF16)

    spec = rotary_spec(64, 10000.0, steps("FLOAT32_POW", "FLOAT32", "FLOAT32", "FLOAT32"), "INTERLEAVED")
    return rotary_case("gpt-j", "transformers modeling_gptj.py", spec, positions, BF16, inv_freq, cos, sin, rotate)


def diffusers_cases():
    from diffusers.models import embeddings
    from diffusers.models.transformers.transformer_flux import FluxPosEmbed

    ids = [(0, 0, 0), (0, 1, 2), (1, 63, 5), (3, 127, 1023)]
    cos, sin = (t[:, ::2] for t in FluxPosEmbed(10000, [16, 56, 56])(torch.tensor(ids)))
    inv_freq = torch.cat([1.0 / (10000 ** (torch.arange(0, d, 2, dtype=F64) / d)) for d in (16, 56, 56)])
    axial = {"axes": 3, "axes_dim": [16, 56, 56], "axis_rule": "AXIS_RULE_AXIAL"}

    def rotate(x):
        tables = (cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1))
        return embeddings.apply_rotary_emb(x[None, None], tables)[0, 0]

    spec = rotary_spec(128, 10000.0, steps("FLOAT64", "FLOAT64", "FLOAT32", "FLOAT32"), "INTERLEAVED", **axial)
    yield rotary_case("flux", "diffusers FluxPosEmbed, apply_rotary_emb", spec, ids, BF16, inv_freq, cos, sin, rotate)
    yield wan()
    times = [0.0, 0.5, 1.0, 37.25, 999.0, 1000.0]
    for name, dim, shift, flip, scale in (("timestep", 256, 0.0, True, 1.0), ("ddpm", 128, 1.0, False, 1.0), ("scaled", 64, 0.0, True, 1000.0)):
        spec = encoding_spec(dim, steps("FLOAT32_EXP", "FLOAT32", "FLOAT32"), "COS_SIN" if flip else "SIN_COS", downscale_freq_shift=shift, position_scale=scale)
        rows = embeddings.get_timestep_embedding(torch.tensor(times), dim, flip, shift, scale)
        inv_freq = torch.exp(-np.log(10000.0) * torch.arange(dim // 2, dtype=F32) / (dim // 2 - shift))
        yield encoding_case(f"diffusers-{name}", "diffusers get_timestep_embedding", spec, times, F32, inv_freq, rows)
    yield qwen_image()


def wan():
    """The original's arithmetic: complex numbers of two f64."""
    positions = [(0, 0, 0), (1, 2, 3), (20, 44, 79)]
    frequencies = [1.0 / torch.pow(10000, torch.arange(0, d, 2).to(F64).div(d)) for d in (44, 42, 42)]
    inv_freq = torch.cat(frequencies)
    position = torch.tensor(positions, dtype=F64)
    angles = torch.cat([torch.outer(position[:, a], frequencies[a]) for a in range(3)], -1)
    table = torch.polar(torch.ones_like(angles), angles)

    def rotate(x):
        pairs = torch.view_as_complex(x.to(F64).reshape(len(positions), -1, 2))
        return torch.view_as_real(pairs * table).flatten(1).float()

    axial = {"axes": 3, "axes_dim": [44, 42, 42], "axis_rule": "AXIS_RULE_AXIAL"}
    spec = rotary_spec(128, 10000.0, steps("FLOAT64", "FLOAT64", "FLOAT64", "FLOAT64"), "INTERLEAVED", **axial)
    return rotary_case("wan", "Wan2.1 wan/modules/model.py rope_params, rope_apply, transcribed", spec, positions, F32, inv_freq, table.real, table.imag, rotate)


def qwen_image():
    from diffusers.models.transformers import transformer_qwenimage as qwen

    times = torch.tensor([0.0, 0.25, 0.5, 0.99609375], dtype=BF16)
    rows = qwen.get_timestep_embedding(times, 256, True, 0, 1000)
    inv_freq = torch.exp(-np.log(10000.0) * torch.arange(128, dtype=F32) / 128).to(BF16)
    block = steps("FLOAT32_EXP", "FLOAT32", "FLOAT32", frequency_storage="BFLOAT16", position="BFLOAT16")
    spec = encoding_spec(256, block, "COS_SIN", position_scale=1000)
    return encoding_case("qwen-image", "diffusers transformer_qwenimage.py get_timestep_embedding", spec, times.float().tolist(), F32, inv_freq, rows)


def sinusoid_cases():
    positions = [0, 1, 2, 77, 1023]
    position = torch.arange(1024, dtype=F32)[:, None]
    step = torch.exp(torch.arange(0, 64, 2).float() * (-np.log(10000.0) / 64))
    table = torch.stack([torch.sin(position * step), torch.cos(position * step)], -1).flatten(1)[positions]
    spec = encoding_spec(64, steps("FLOAT32_EXP_STEP", "FLOAT32", "FLOAT32"), arrangement="INTERLEAVED")
    yield encoding_case("transformer", "PyTorch tutorial PositionalEncoding, transcribed", spec, positions, F32, step, table)
    omega = 1.0 / 10000 ** (np.arange(32, dtype=np.float64) / 32.0)
    angles = np.einsum("m,d->md", np.array(positions, np.float32), omega)
    rows = torch.from_numpy(np.concatenate([np.sin(angles), np.cos(angles)], 1)).float()
    spec = encoding_spec(64, steps("FLOAT64", "FLOAT64", "FLOAT32"))
    yield encoding_case("mae-1d", "MAE get_1d_sincos_pos_embed_from_grid, transcribed", spec, positions, F32, torch.from_numpy(omega), rows)


def main(path):
    torch.set_num_threads(1)
    cases = [case for group in (transformers_cases, diffusers_cases, sinusoid_cases) for case in group()]
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(f"[\n{lines}\n]\n")
    print(f"parity: {len(cases)} cases", file=sys.stderr)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN)
