# SPDX-License-Identifier: Apache-2.0
"""Cases of rotary embeddings of language models, computed by transformers' own classes with the
numbers of presets.json."""

import numpy as np
import torch

from case import PRESETS, ROTARY, Case, preset_case
from hf import F32, ComplexRotary, Rotary, config_of, packages


def around(context):
    """Small positions, both sides of the context's end, and beyond it."""
    return [0, 1, 2, 7, 100, 1023, context - 1, context, min(2 * context + 1, 2**24 - 1)]


def rope_parameters(spec, **more):
    """The `rope_parameters` of a config.json that say what the spec says."""
    parameters = {"rope_type": "default", "rope_theta": float(spec["rope_theta"]), **more}
    for rule, fields in spec.get("rope_scaling", {}).items():
        parameters |= {"rope_type": rule, **fields}
    return parameters


def llama_like(name, model, prefix, layout="duplicated", context=None, given=None, **fields):
    """A model whose rotary embedding covers whole heads, or a first part of them."""
    preset = PRESETS[name]
    spec = dict(preset["spec"], **(given or {}))
    head = spec["head_dim"]
    more = {}
    rotary_dim = spec.get("rotary_dim") or int(head * spec.get("partial_rotary_factor", 1))
    if rotary_dim != head:
        more["partial_rotary_factor"] = rotary_dim / head
    config = config_of(
        model,
        f"{prefix}Config",
        hidden_size=4 * head,
        num_attention_heads=4,
        max_position_embeddings=context or preset["context_length"],
        rope_parameters=rope_parameters(spec, **more),
        **fields,
    )
    positions = around(context or preset["context_length"])
    rotary = Rotary(model, f"{prefix}RotaryEmbedding", config, layout=layout)
    own_split = model in ("gpt_neox", "glm4", "phi3")  # the apply function passes the other lanes through
    rotate = rotary.rotator(positions, 0, None if own_split else rotary_dim)
    return preset_case(name, positions, rotary.compute, F32, given, rotate, frequencies=rotary.frequencies)


def named_models():
    for name in ("llama-1", "llama-2", "llama-3", "llama-3.1-8b", "llama-3.2-1b", "llama-3.2-3b", "llama-3.3-70b"):
        yield llama_like(name, "llama", "Llama", head_dim=PRESETS[name]["spec"]["head_dim"])
    yield llama_like("mistral-7b-v0.1", "mistral", "Mistral")
    yield llama_like("mistral-7b-v0.3", "mistral", "Mistral")
    yield llama_like("ministral-3", "ministral3", "Ministral3", head_dim=128)
    for name in ("qwen2-7b", "qwen2.5-7b", "qwen2.5-7b-yarn"):
        yield llama_like(name, "qwen2", "Qwen2")
    for name in ("qwen3-8b", "qwen3-8b-yarn"):
        yield llama_like(name, "qwen3", "Qwen3", head_dim=128)
    yield llama_like("gemma-2", "gemma2", "Gemma2", head_dim=256)
    yield llama_like("phi-3-mini-4k", "phi3", "Phi3")
    yield llama_like("phi-4", "phi3", "Phi3")
    yield llama_like("gpt-neox", "gpt_neox", "GPTNeoX", given={"head_dim": 64})
    yield llama_like("gpt-neox-20b", "gpt_neox", "GPTNeoX")
    yield llama_like("pythia", "gpt_neox", "GPTNeoX", given={"head_dim": 128})
    yield llama_like("cohere", "cohere", "Cohere", layout="repeated")
    yield llama_like("command-r", "cohere", "Cohere", layout="repeated")
    yield llama_like("glm-4", "glm4", "Glm4", head_dim=128)
    yield llama_like("gpt-oss", "gpt_oss", "GptOss", layout="single", head_dim=64)
    yield esm()
    yield gpt_j()
    yield roformer()


def longrope():
    """Up to the original length, and one token more."""
    for name in ("phi-3-vision-128k", "phi-3.5-mini", "phi-4-mini"):
        for length in (4096, 4097, 131072):
            preset = PRESETS[name]
            spec = dict(preset["spec"], sequence_length=length)
            rule = spec["rope_scaling"]["longrope"]
            head = spec["head_dim"]
            factor = spec.get("rotary_dim", head) / head
            parameters = {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": rule["short_factor"],
                "long_factor": rule["long_factor"],
                "original_max_position_embeddings": 4096,
                "partial_rotary_factor": factor,
            }
            config = config_of(
                "phi3",
                "Phi3Config",
                hidden_size=4 * head,
                num_attention_heads=4,
                max_position_embeddings=131072,
                original_max_position_embeddings=4096,
                rope_parameters=parameters,
            )
            rotary = Rotary("phi3", "Phi3RotaryEmbedding", config)
            positions = [0, 1, 2, 7, 100, 1023, min(length, 4096) - 2, length - 1]
            case = preset_case(name, positions, rotary.compute, F32, {"sequence_length": length}, rotary.rotator(positions), frequencies=rotary.frequencies)
            case.name = f"{name}-{length}"
            yield case


def esm():
    config = config_of("esm", "EsmConfig", vocab_size=33, pad_token_id=1, position_embedding_type="rotary")
    rotary = Rotary("esm", "EsmRotaryEmbedding", config)
    positions = around(1026)
    return preset_case("esm-2", positions, rotary.compute, F32, rotate=rotary.rotator(positions), frequencies=rotary.frequencies)


def gpt_j():
    from transformers.models.gptj import modeling_gptj as gptj

    def table(positions):
        rows = gptj.create_sinusoidal_positions(max(positions) + 1, 64)[positions]
        return rows.chunk(2, dim=-1)  # sines first

    def compute(positions):
        sin, cos = table(positions)
        return cos.numpy(), sin.numpy()

    def rotate(x):
        sin, cos = table(positions)
        q = torch.from_numpy(x)[None, :, None, :]  # [batch, tokens, heads, lanes]
        turned = gptj.apply_rotary_pos_emb(q[..., :64], sin[None], cos[None])
        return torch.cat([turned, q[..., 64:]], -1)[0, :, 0].numpy()

    positions = around(2048)
    steps = "inv_freq f32, angle = f32 product, one table [sin | cos] in f32"
    return preset_case("gpt-j", positions, compute, steps, rotate=rotate)


def roformer():
    from transformers.models.roformer import modeling_roformer as roformer

    def table(positions):
        embedding = roformer.RoFormerSinusoidalPositionalEmbedding(max(positions) + 1, 64)
        return embedding.create_weight()[positions]

    def compute(positions):
        sin, cos = table(positions).chunk(2, dim=-1)
        return cos.numpy(), sin.numpy()

    def rotate(x):
        q = torch.from_numpy(x)[None, None]
        apply = roformer.RoFormerSelfAttention.apply_rotary_position_embeddings
        return apply(table(positions)[None, None], q, q)[0][0, 0].numpy()

    positions = [0, 1, 2, 7, 100, 1023, 1535, 1536, 3073]
    steps = "frequency, angle, sine and cosine f64 (numpy), table rounded to f32"
    return preset_case("roformer", positions, compute, steps, rotate=rotate)


def gemma():
    def case(name, model, layer, head, parameters, **fields):
        prefix = {"gemma3": "Gemma3", "gemma4": "Gemma4Text"}[model]
        config_name = {"gemma3": "Gemma3TextConfig", "gemma4": "Gemma4TextConfig"}[model]
        config = config_of(model, config_name, rope_parameters=parameters, **fields)
        rotary = Rotary(model, f"{prefix}RotaryEmbedding", config, layer_type=layer, apply="rotate_half")
        positions = around(131072)

        def rotate(x, dtype):  # q * cos + rotate_half(q) * sin, as both models do
            cos, sin = (t[0] for t in rotary.tables(positions, dtype))
            q = torch.from_numpy(x).to(dtype)
            return (q * cos + rotary.apply_function(q) * sin).float().numpy()

        rotate = {"f32": lambda x, r=rotate: r(x, torch.float32), "bf16": lambda x, r=rotate: r(x, torch.bfloat16)}

        given = {"head_dim": head} if "head_dim" in PRESETS[name]["required"] else None
        return preset_case(name, positions, rotary.compute, F32, given, rotate, frequencies=rotary.frequencies)

    gemma3 = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
    }
    yield case("gemma-3-local", "gemma3", "sliding_attention", 256, gemma3)
    yield case("gemma-3-global", "gemma3", "full_attention", 256, gemma3)
    yield case("gemma-4-local", "gemma4", "sliding_attention", 256, None)
    yield case("gemma-4-global", "gemma4", "full_attention", 512, None)


def latent_attention():
    """Multi-head latent attention: only the last lanes of a head turn."""

    def parameters(name):
        return rope_parameters(PRESETS[name]["spec"])

    def case(name, rotary, begin, end):
        positions = around(PRESETS[name]["context_length"])
        return preset_case(name, positions, rotary.compute, F32, rotate=rotary.rotator(positions, begin, end), frequencies=rotary.frequencies)

    def v3(name):
        config = config_of(
            "deepseek_v3",
            "DeepseekV3Config",
            rope_parameters=parameters(name),
            max_position_embeddings=PRESETS[name]["context_length"],
        )
        return Rotary("deepseek_v3", "DeepseekV3RotaryEmbedding", config, apply="apply_rotary_pos_emb_interleave")

    yield case("deepseek-v3-hf", v3("deepseek-v3-hf"), 128, 192)
    for name in ("deepseek-v3", "kimi-k2"):  # the same tables; pairs stay in place
        preset = PRESETS[name]
        positions = around(preset["context_length"])
        upstream = f"{packages()} DeepseekV3RotaryEmbedding; rotation in place as in {preset['source']}"
        rotary = v3(name)
        yield preset_case(name, positions, rotary.compute, F32, upstream=upstream, frequencies=rotary.frequencies)
    config = config_of("deepseek_v2", "DeepseekV2Config", rope_parameters=parameters("deepseek-v2"), max_position_embeddings=163840)
    rotary = ComplexRotary("deepseek_v2", "DeepseekV2RotaryEmbedding", config, apply="apply_rotary_emb")
    yield case("deepseek-v2", rotary, 128, 192)
    config = config_of("mistral4", "Mistral4Config")
    rotary = Rotary("mistral4", "Mistral4RotaryEmbedding", config, apply="apply_rotary_pos_emb_interleave")
    yield case("mistral-4", rotary, 64, 128)
    config = config_of("mistral_large4", "MistralLarge4TextConfig")
    rotary = Rotary("mistral_large4", "MistralLarge4TextRotaryEmbedding", config, apply="apply_rotary_pos_emb_interleave")
    yield case("mistral-large-4", rotary, 64, 128)


def llama4():
    scout = {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0}
    scout |= {"original_max_position_embeddings": 8192, "rope_theta": 500000.0}
    for name, parameters in (("llama-4-maverick", None), ("llama-4-scout", scout)):
        context = PRESETS[name]["context_length"]
        config = config_of("llama4", "Llama4TextConfig", rope_parameters=parameters, max_position_embeddings=context)
        rotary = ComplexRotary("llama4", "Llama4TextRotaryEmbedding", config, layout="tokens first", apply="apply_rotary_emb")
        positions = around(context)
        yield preset_case(name, positions, rotary.compute, F32 + " (complex64)", rotate=rotary.rotator(positions), frequencies=rotary.frequencies)


def scalings():
    """Every rule of modeling_rope_utils.py beside the presets, on a Llama."""
    base = {"kind": ROTARY, "family": "FREQUENCY_FAMILY_GEOMETRIC", "rope_theta": 10000, "pairing": "PAIRING_HALF_SPLIT", "head_dim": 64}
    yarn = {"factor": 4, "original_max_position_embeddings": 2048}
    rules = {
        "linear": {"linear": {"factor": 2.5}},
        "dynamic-ntk-short": {"ntk": {"factor": 4, "dynamic": True, "original_max_position_embeddings": 2048}},
        "dynamic-ntk-long": {"ntk": {"factor": 4, "dynamic": True, "original_max_position_embeddings": 2048}},
        "yarn": {"yarn": yarn},
        "yarn-not-truncated": {"yarn": {**yarn, "truncate": False}},
        "yarn-given-amplitude": {"yarn": {**yarn, "attention_factor": 1.25}},
        "yarn-two-mscales": {"yarn": {**yarn, "mscale": 1.0, "mscale_all_dim": 0.5}},
        "yarn-one-mscale": {"yarn": {**yarn, "mscale": 0.7}},
        "yarn-betas": {"yarn": {**yarn, "beta_fast": 4, "beta_slow": 2}},
        "yarn-equal-betas": {"yarn": {**yarn, "beta_fast": 2, "beta_slow": 2, "truncate": False}},
        "yarn-clamped": {"yarn": {"factor": 4, "original_max_position_embeddings": 16, "beta_fast": 32}},
        "yarn-shrinking": {"yarn": {**yarn, "factor": 0.5}},
        "llama3": {"llama3": {"factor": 4, "low_freq_factor": 2, "high_freq_factor": 8, "original_max_position_embeddings": 512}},
        "proportional": {},
    }
    for name, rule in rules.items():
        spec = dict(base, rope_scaling=rule) if rule else dict(base, rope_theta=1000000, live_pairs=12, position_scale=0.25)
        parameters = rope_parameters(spec)
        context = 8192
        positions = [0, 1, 2, 7, 100, 1023, 2047, 2048, 8191]
        if name.startswith("dynamic"):
            context = 2048
            length = 1500 if name.endswith("short") else 6000
            spec["sequence_length"] = length
            parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
            positions = [0, 1, 2, 7, 100, 1023, length - 2, length - 1]  # the longest is the sequence's end
        if name == "proportional":
            parameters |= {"rope_type": "proportional", "partial_rotary_factor": 0.375, "factor": 4.0}
        config = config_of(
            "llama",
            "LlamaConfig",
            hidden_size=256,
            num_attention_heads=4,
            max_position_embeddings=context,
            rope_parameters=parameters,
        )
        rotary = Rotary("llama", "LlamaRotaryEmbedding", config)
        upstream = f"{packages()} LlamaRotaryEmbedding, {parameters['rope_type']}"
        yield Case(f"scaling-{name}", spec, positions, upstream, F32, rotary.compute, rotate=rotary.rotator(positions), frequencies=rotary.frequencies)


def hunyuan_alpha():
    """NTK by alpha, static."""
    spec = {"kind": ROTARY, "family": "FREQUENCY_FAMILY_GEOMETRIC", "rope_theta": 10000, "pairing": "PAIRING_HALF_SPLIT", "head_dim": 128}
    spec["rope_scaling"] = {"ntk": {"factor": 1000}}
    parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 1000.0, "factor": 1.0}
    config = config_of(
        "hunyuan_v1_dense",
        "HunYuanDenseV1Config",
        hidden_size=512,
        num_attention_heads=4,
        head_dim=128,
        max_position_embeddings=32768,
        rope_parameters=parameters,
    )
    rotary = Rotary("hunyuan_v1_dense", "HunYuanDenseV1RotaryEmbedding", config)
    positions = [0, 1, 2, 7, 100, 1023, 32766, 32767]
    upstream = f"{packages()} HunYuanDenseV1RotaryEmbedding, alpha"
    yield Case("scaling-ntk-alpha", spec, positions, upstream, F32, rotary.compute, rotate=rotary.rotator(positions), frequencies=rotary.frequencies)


def definitions():
    """The presets that are definitions, by packages that implement them."""
    import rotary_embedding_torch as lucidrains
    from transformers.models.llama import modeling_llama as llama

    given = {"head_dim": 64}
    case = llama_like("rope-half-split", "llama", "Llama", given=given, context=8192)
    case.upstream = f"{packages()} {llama.LlamaRotaryEmbedding.__name__}"
    yield case
    embedding = lucidrains.RotaryEmbedding(64, cache_if_possible=False)
    positions = around(8192)

    def angles(positions):
        return embedding.forward(torch.tensor(positions, dtype=torch.float32))

    def compute(positions):
        table = angles(positions)[:, ::2]
        return table.cos().numpy(), table.sin().numpy()

    def rotate(x):
        return lucidrains.apply_rotary_emb(angles(positions), torch.from_numpy(x)).numpy()

    steps = "frequencies f32, angle = f32 product, cos and sin f32"
    upstream = "rotary-embedding-torch 0.9.1 RotaryEmbedding"
    yield preset_case("rope-interleaved", positions, compute, steps, given, rotate, upstream)


def ntk_by_factor():
    """lucidrains' base rescaling, in both packages."""
    import rotary_embedding_torch as lucidrains
    from x_transformers.x_transformers import RotaryEmbedding

    spec = {"kind": ROTARY, "family": "FREQUENCY_FAMILY_GEOMETRIC", "rope_theta": 10000, "pairing": "PAIRING_INTERLEAVED", "head_dim": 32}
    spec["rope_scaling"] = {"ntk": {"factor": 4}}
    one = lucidrains.RotaryEmbedding(32, theta_rescale_factor=4.0, cache_if_possible=False)
    two = RotaryEmbedding(32, base_rescale_factor=4.0)
    positions = [0, 1, 2, 7, 100, 1023, 8191]

    def first(positions):
        table = one.forward(torch.tensor(positions, dtype=torch.float32))[:, ::2]
        return table.detach().cos().numpy(), table.detach().sin().numpy()

    def second(positions):
        table = two.forward(torch.tensor(positions))[0][0, :, ::2]
        return table.cos().numpy(), table.sin().numpy()

    steps = "frequencies f32, angle = f32 product, cos and sin f32"
    yield Case("scaling-ntk-rotary-embedding-torch", spec, positions, "rotary-embedding-torch 0.9.1 theta_rescale_factor", steps, first)
    yield Case("scaling-ntk-x-transformers", spec, positions, "x-transformers 2.31.10 base_rescale_factor", steps, second)


def xpos():
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    for inverse in (False, True):
        spec = {"kind": ROTARY, "family": "FREQUENCY_FAMILY_GEOMETRIC", "rope_theta": 10000, "pairing": "PAIRING_INTERLEAVED"}
        spec |= {"head_dim": 32, "xpos": {"scale_base": 512, "center": 512, "inverse": inverse}}
        embedding = RotaryEmbedding(32, use_xpos=True)
        positions = [0, 1, 2, 7, 100, 511, 512, 513, 1000, 1023]  # center = (largest + 1) // 2

        def tables(positions, embedding=embedding, inverse=inverse):
            angles, scale = embedding(torch.tensor(positions))
            return angles, scale**-1.0 if inverse else scale

        def compute(positions, tables=tables):
            angles, scale = (t[0, :, ::2] for t in tables(positions))
            return (angles.cos() * scale).numpy(), (angles.sin() * scale).numpy()

        def rotate(x, tables=tables, positions=positions):
            angles, scale = tables(positions)
            return apply_rotary_pos_emb(torch.from_numpy(x)[None, None], angles, scale)[0, 0].numpy()

        steps = "frequencies, angles, sines, cosines and amplitudes f32"
        name = "xpos-keys" if inverse else "xpos-queries"
        upstream = "x-transformers 2.31.10 RotaryEmbedding(use_xpos=True)"
        yield Case(name, spec, positions, upstream, steps, compute, rotate=rotate)


def transcribed():
    """Rules that no package installs; the formula in torch's f32, as the sources named here write it."""
    base = {"kind": ROTARY, "family": "FREQUENCY_FAMILY_GEOMETRIC", "rope_theta": 10000, "pairing": "PAIRING_HALF_SPLIT", "head_dim": 64}
    positions = [0, 1, 2, 7, 100, 1023, 8191]
    j = torch.arange(0, 64, 2, dtype=torch.float32)
    plain = 1.0 / (10000 ** (j / 64))

    def case(name, rule, frequencies, upstream, amplitude=1.0):
        def compute(positions):
            angles = torch.tensor(positions, dtype=torch.float32)[:, None] * frequencies
            return (angles.cos() * amplitude).numpy(), (angles.sin() * amplitude).numpy()

        steps = "transcribed: frequencies f32, angle = f32 product, cos and sin f32"
        return Case(f"scaling-{name}", dict(base, rope_scaling=rule), positions, upstream, steps, compute)

    fixed = 1.0 / ((10000 * 4) ** (j / 64)) / 4 ** (2 / 64)
    source = "vLLM ntk_scaling_rope.py NTKScalingRotaryEmbedding"
    yield case("fixed-ntk", {"mixed_ntk": {"factor": 4}}, fixed, source)
    b = 0.625
    a = np.log(4) / 32**b
    mixed = plain / torch.exp(torch.tensor(a, dtype=torch.float32) * torch.arange(1, 33).float() ** b)
    yield case("mixed-ntk", {"mixed_ntk": {"factor": 4, "b": b}}, mixed, source)

    def ramp(low_turns, high_turns, original):
        low, high = (64 * np.log(original / (t * 2 * np.pi)) / (2 * np.log(10000)) for t in (low_turns, high_turns))
        low, high = max(np.floor(low), 0), min(np.ceil(high), 63)
        return 1 - torch.clamp((torch.arange(32).float() - low) / (high - low), 0, 1)

    keep = ramp(32, 1, 2048)
    rule = {"factor": 4, "original_max_position_embeddings": 2048}
    amplitude = 0.1 * np.log(4) + 1
    half = keep * 0.5
    yield case(
        "yarn-vllm",
        {"yarn": {**rule, "extrapolation_factor": 0.5, "attn_factor": 0.75}},
        plain / 4 * (1 - half) + plain * half,
        "vLLM yarn_scaling_rope.py YaRNScalingRotaryEmbedding",
        amplitude * 0.75,
    )
    grok = torch.exp(keep * plain.log() + (1 - keep) * (plain / 4).log())
    yield case("yarn-log", {"yarn": {**rule, "log_interpolation": True, "attention_factor": 1}}, grok, "vLLM grok1.py yarn_log, amplitude not applied")
    tele = plain / 4 * (1 - keep) + plain * keep
    yield case("yarn-telechat3", {"yarn": {**rule, "mscale_coefficient": 0.07}}, tele, "vLLM telechat3.py, amplitude 0.07 ln f + 1", 0.07 * np.log(4) + 1)


def cases():
    for group in (named_models, longrope, gemma, latent_attention, llama4, scalings, hunyuan_alpha, definitions, ntk_by_factor, xpos, transcribed):
        yield from group()
