# SPDX-License-Identifier: Apache-2.0
"""configs.py: computes configurations with transformers and writes the results to
configs/golden.json.

A case has a config.json (only the keys that matter, in the forms of published models), the fields
set beside it, and results of transformers' own classes: cosines and sines at position 1, and a
rotated vector. configs_test.cc compares with them. Run it in the environment that `./dev
conformance` makes; that command compares with the stored results.
"""

import dataclasses
import json

import numpy as np
import torch
from transformers import AutoConfig

from case import ROOT, float32, input_lanes, sample, write
from hf import ComplexRotary, Rotary, packages

GOLDEN = ROOT / "configs" / "golden.json"
MOST_PAIRS = 24


@dataclasses.dataclass
class Config:
    name: str
    config: dict
    rotary: str  # its embedding's class
    given: dict = dataclasses.field(default_factory=dict)  # fields of the spec beside config_json
    layout: str = "duplicated"
    apply: str = "apply_rotary_pos_emb"
    lanes: tuple = (0, None)  # what the model passes to `apply`
    width: int = 0  # of a head, where more than the turning lanes are passed or left
    axes: int = 1
    complex: bool = False


LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 8192}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
DEEPSEEK = {"hidden_size": 7168, "num_attention_heads": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "max_position_embeddings": 163840}
DEEPSEEK_YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1}
MISTRAL3_YARN = {"type": "yarn", "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384}
MISTRAL3_YARN |= {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
GEMMA3 = {"model_type": "gemma3_text", "hidden_size": 2560, "sliding_window": 1024}
GEMMA4 = {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
GEMMA4 |= {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0}}
PHI3 = {"model_type": "phi3", "hidden_size": 384, "num_attention_heads": 4, "rope_theta": 10000.0}
PHI3 |= {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096}
PHI3_FACTORS = {"short_factor": [1 + j / 64 for j in range(48)], "long_factor": [1 + j * 1.25 for j in range(48)]}
FULL, SLIDING = {"layer_type": "full_attention"}, {"layer_type": "sliding_attention"}
LATENT = {"apply": "apply_rotary_pos_emb_interleave", "lanes": (128, 192)}


def scaled(rule, **more):
    return dict(LLAMA, rope_theta=10000.0, rope_scaling=rule, **more)


def models():
    """(model_type, class, fields, more): one published form each, as old or as new as it was."""
    yield Config("llama-1", dict(LLAMA, max_position_embeddings=2048), "LlamaRotaryEmbedding")
    yield Config("llama-3.1", dict(LLAMA, rope_theta=500000.0, rope_scaling={"rope_type": "llama3", **LLAMA3}, max_position_embeddings=131072), "LlamaRotaryEmbedding")
    yield Config("llama-new-form", dict(LLAMA, rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, **LLAMA3}), "LlamaRotaryEmbedding")
    yield Config("mistral-0.3", {"model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32, "head_dim": None, "rope_theta": 1000000.0}, "MistralRotaryEmbedding")
    yield Config("mixtral-default-base", {"model_type": "mixtral", "hidden_size": 4096, "num_attention_heads": 32}, "MixtralRotaryEmbedding")
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    yield Config("qwen2.5-yarn", {"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "rope_theta": 1000000.0, "rope_scaling": yarn}, "Qwen2RotaryEmbedding")
    yield Config("qwen3-default-head", {"model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16, "rope_theta": 1000000}, "Qwen3RotaryEmbedding")
    yield Config("qwen3-moe", {"model_type": "qwen3_moe", "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 128, "rope_theta": 1e7, "rope_scaling": None}, "Qwen3MoeRotaryEmbedding")
    yield Config("qwen3-next", {"model_type": "qwen3_next", "hidden_size": 2048, "num_attention_heads": 16, "rope_theta": 1e7, "partial_rotary_factor": 0.25}, "Qwen3NextRotaryEmbedding", width=256)
    yield Config("gemma-1", {"model_type": "gemma", "hidden_size": 2048, "num_attention_heads": 8}, "GemmaRotaryEmbedding")
    yield Config("gemma-2", {"model_type": "gemma2", "hidden_size": 3584, "num_attention_heads": 16, "head_dim": 256, "rope_theta": 10000.0}, "Gemma2RotaryEmbedding")
    gemma3 = dict(GEMMA3, rope_scaling={"factor": 8.0, "rope_type": "linear"})
    nested = {"model_type": "gemma3", "text_config": gemma3, "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152}}
    yield Config("gemma-3-full", nested, "Gemma3RotaryEmbedding", FULL, apply="rotate_half")
    yield Config("gemma-3-sliding", nested, "Gemma3RotaryEmbedding", SLIDING, apply="rotate_half")
    bases = dict(GEMMA3, rope_theta=2000000.0, rope_local_base_freq=20000.0)
    yield Config("gemma-3-bases-full", bases, "Gemma3RotaryEmbedding", FULL, apply="rotate_half")
    yield Config("gemma-3-bases-sliding", bases, "Gemma3RotaryEmbedding", SLIDING, apply="rotate_half")
    gemma4 = {"model_type": "gemma4_text", "hidden_size": 2304, "num_attention_heads": 8, "head_dim": 256, "rope_parameters": GEMMA4}
    yield Config("gemma-4-full", gemma4, "Gemma4TextRotaryEmbedding", FULL, apply="rotate_half")
    yield Config("gemma-4-sliding", gemma4, "Gemma4TextRotaryEmbedding", SLIDING, apply="rotate_half")
    # As transformers saves it: widths of single layers, and no global_head_dim.
    per_layer = dict(gemma4, num_hidden_layers=3, layer_types=["sliding_attention"] * 2 + ["full_attention"], per_layer_config={"2": {"head_dim": 384}})
    yield Config("gemma-4-per-layer-full", per_layer, "Gemma4TextRotaryEmbedding", FULL, apply="rotate_half")
    yield Config("gemma-4-per-layer-sliding", per_layer, "Gemma4TextRotaryEmbedding", SLIDING, apply="rotate_half")
    modernbert = {"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    yield Config("modernbert-full", modernbert, "ModernBertRotaryEmbedding", FULL)
    yield Config("modernbert-sliding", modernbert, "ModernBertRotaryEmbedding", SLIDING)
    yield Config("phi-2", {"model_type": "phi", "hidden_size": 2560, "num_attention_heads": 32, "partial_rotary_factor": 0.4}, "PhiRotaryEmbedding", lanes=(0, 32), width=80)
    yield Config("pythia", {"model_type": "gpt_neox", "hidden_size": 2048, "num_attention_heads": 16, "rotary_pct": 0.25, "rotary_emb_base": 10000}, "GPTNeoXRotaryEmbedding", width=128)
    yield Config("stablelm", {"model_type": "stablelm", "hidden_size": 2560, "num_attention_heads": 32, "partial_rotary_factor": 0.25}, "StableLmRotaryEmbedding", lanes=(0, 20), width=80)
    yield Config("persimmon-default", {"model_type": "persimmon", "hidden_size": 4096, "num_attention_heads": 64, "rope_theta": 25000.0}, "PersimmonRotaryEmbedding", lanes=(0, 32), width=64)
    yield Config("nemotron", {"model_type": "nemotron", "hidden_size": 6144, "num_attention_heads": 48, "partial_rotary_factor": 0.5, "rope_theta": 10000}, "NemotronRotaryEmbedding", width=128)
    yield Config("starcoder2", {"model_type": "starcoder2", "hidden_size": 3072, "num_attention_heads": 24, "rope_theta": 999999.4420358813}, "Starcoder2RotaryEmbedding")
    yield Config("olmo2", {"model_type": "olmo2", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 500000}, "Olmo2RotaryEmbedding")
    yarn = {"attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "yarn"}
    olmo3 = {"model_type": "olmo3", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 500000, "rope_scaling": yarn, "max_position_embeddings": 65536}
    olmo3 |= {"num_hidden_layers": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
    yield Config("olmo-3-full", olmo3, "Olmo3RotaryEmbedding", FULL)
    yield Config("olmo-3-sliding", olmo3, "Olmo3RotaryEmbedding", SLIDING)
    jetmoe = {"model_type": "jetmoe", "hidden_size": 2048, "num_key_value_heads": 16, "num_attention_heads": 32, "kv_channels": 128, "rope_theta": 10000.0}
    yield Config("jetmoe", jetmoe, "JetMoeRotaryEmbedding")
    yield Config("falcon", {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "alibi": False}, "FalconRotaryEmbedding")
    yield Config("granite", {"model_type": "granite", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 10000000.0}, "GraniteRotaryEmbedding")
    yield Config("smollm3-layers", {"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "rope_theta": 5000000.0, "no_rope_layer_interval": 4}, "SmolLM3RotaryEmbedding")
    yield Config("cohere", {"model_type": "cohere", "hidden_size": 8192, "num_attention_heads": 64, "rope_theta": 8000000.0}, "CohereRotaryEmbedding", layout="repeated")
    yield Config("cohere2", {"model_type": "cohere2", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 50000}, "Cohere2RotaryEmbedding", layout="repeated")
    yield Config("glm-4", {"model_type": "glm4", "hidden_size": 4096, "num_attention_heads": 32, "partial_rotary_factor": 0.5}, "Glm4RotaryEmbedding", width=128)
    yield Config("glm-4.5", {"model_type": "glm4_moe", "hidden_size": 4096, "num_attention_heads": 96, "head_dim": 128, "partial_rotary_factor": 0.5, "rope_theta": 1000000}, "Glm4MoeRotaryEmbedding", width=128)
    yield Config("ernie-4.5", {"model_type": "ernie4_5", "hidden_size": 1024, "num_attention_heads": 16, "head_dim": 128, "rope_theta": 500000.0}, "Ernie4_5RotaryEmbedding")
    yield Config("helium", {"model_type": "helium", "hidden_size": 2560, "num_attention_heads": 20}, "HeliumRotaryEmbedding")
    gpt_oss = {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": False}
    gpt_oss = {"model_type": "gpt_oss", "hidden_size": 2880, "num_attention_heads": 64, "head_dim": 64, "rope_theta": 150000, "rope_scaling": gpt_oss, "max_position_embeddings": 131072}
    yield Config("gpt-oss", gpt_oss, "GptOssRotaryEmbedding", layout="single")
    ministral = {"model_type": "ministral3", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 262144, "rope_parameters": MISTRAL3_YARN}
    yield Config("ministral-3", ministral, "Ministral3RotaryEmbedding")
    hunyuan = {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "type": "dynamic"}
    yield Config("hunyuan-alpha", {"model_type": "hunyuan_v1_dense", "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128, "rope_scaling": hunyuan, "max_position_embeddings": 32768}, "HunYuanDenseV1RotaryEmbedding")
    minimax = {"model_type": "minimax_m2", "hidden_size": 3072, "num_attention_heads": 48, "head_dim": 128, "rotary_dim": 64, "rope_theta": 5000000}
    yield Config("minimax-m2", minimax, "MiniMaxM2RotaryEmbedding", lanes=(0, 64), width=128)


def scalings():
    """Every rope_type on a Llama, and where the length decides."""
    yield Config("linear", scaled({"type": "linear", "factor": 2.5}), "LlamaRotaryEmbedding")
    dynamic = scaled({"type": "dynamic", "factor": 4.0})
    yield Config("dynamic-short", dynamic, "LlamaRotaryEmbedding", {"sequence_length": 4000})
    yield Config("dynamic-long", dynamic, "LlamaRotaryEmbedding", {"sequence_length": 20000})
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    yield Config("yarn", scaled(yarn), "LlamaRotaryEmbedding")
    yield Config("yarn-one-mscale", scaled(dict(yarn, mscale=0.7)), "LlamaRotaryEmbedding")
    yield Config("yarn-two-mscales", scaled(dict(yarn, mscale=1.0, mscale_all_dim=0.5)), "LlamaRotaryEmbedding")
    yield Config("yarn-given-amplitude", scaled(dict(yarn, attention_factor=1.25, mscale=1.0, mscale_all_dim=0.5)), "LlamaRotaryEmbedding")
    yield Config("yarn-not-truncated", scaled(dict(yarn, truncate=False, beta_fast=4, beta_slow=2)), "LlamaRotaryEmbedding")
    yield Config("yarn-factor-of-lengths", scaled(dict(yarn, factor=None)), "LlamaRotaryEmbedding")
    yield Config("proportional", scaled({"rope_type": "proportional", "factor": 4.0, "partial_rotary_factor": 0.375}), "LlamaRotaryEmbedding")
    yield Config("phi-3-longrope-short", dict(PHI3, rope_scaling={"type": "longrope", **PHI3_FACTORS}), "Phi3RotaryEmbedding", {"sequence_length": 4096})
    yield Config("phi-3-longrope-long", dict(PHI3, rope_scaling={"type": "longrope", **PHI3_FACTORS}), "Phi3RotaryEmbedding", {"sequence_length": 4097})
    phi4 = dict(PHI3, partial_rotary_factor=0.75, rope_scaling={"type": "longrope", "short_factor": [1.0] * 36, "long_factor": PHI3_FACTORS["long_factor"][:36]})
    yield Config("phi-4-mini-long", phi4, "Phi3RotaryEmbedding", {"sequence_length": 5000}, width=96)


def latent_attention():
    v3 = {"model_type": "deepseek_v3", **DEEPSEEK, "rope_theta": 10000}
    yield Config("deepseek-v3", dict(v3, rope_scaling=dict(DEEPSEEK_YARN, mscale=1.0, mscale_all_dim=1.0)), "DeepseekV3RotaryEmbedding", **LATENT)
    yield Config("deepseek-v3-half-split", dict(v3, rope_interleave=False), "DeepseekV3RotaryEmbedding", lanes=(128, 192))
    v2 = {"model_type": "deepseek_v2", **DEEPSEEK, "rope_theta": 10000, "rope_scaling": dict(DEEPSEEK_YARN, mscale=0.707, mscale_all_dim=0.707)}
    yield Config("deepseek-v2", v2, "DeepseekV2RotaryEmbedding", apply="apply_rotary_emb", lanes=(128, 192), complex=True)
    lite = {"model_type": "glm4_moe_lite", "hidden_size": 2048, "num_attention_heads": 20, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "rope_theta": 1000000}
    yield Config("glm-4.7-flash", lite, "Glm4MoeLiteRotaryEmbedding", apply="apply_rotary_pos_emb_interleave", lanes=(192, 256))
    llama4 = {"model_type": "llama4_text", "hidden_size": 5120, "num_attention_heads": 40, "head_dim": 128, "rope_theta": 500000.0, "max_position_embeddings": 10485760}
    llama4 |= {"rope_scaling": {"factor": 16.0, "high_freq_factor": 1.5, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}}
    yield Config("llama-4", {"model_type": "llama4", "text_config": llama4}, "Llama4TextRotaryEmbedding", layout="tokens first", apply="apply_rotary_emb", complex=True)


def several_axes():
    qwen2 = {"model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28, "rope_theta": 1000000.0, "vision_config": {"embed_dim": 1280, "num_heads": 16, "model_type": "qwen2_vl"}}
    qwen2 |= {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
    yield Config("qwen2-vl-flat", qwen2, "Qwen2VLRotaryEmbedding", axes=3)
    yield Config("qwen2-vl-vision", qwen2, "Qwen2VLVisionRotaryEmbedding", {"sub_config": "vision_config"}, apply="rotate_half", axes=2)
    text = {"model_type": "qwen3_vl_text", "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128, "rope_theta": 5000000}
    text |= {"rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"}}
    yield Config("qwen3-vl", {"model_type": "qwen3_vl", "text_config": text}, "Qwen3VLTextRotaryEmbedding", axes=3)
    qwen35 = {"mrope_interleaved": True, "mrope_section": [11, 11, 10], "rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25}
    qwen35 = {"model_type": "qwen3_5_text", "hidden_size": 4096, "num_attention_heads": 16, "head_dim": 256, "rope_parameters": qwen35}
    yield Config("qwen3.5", qwen35, "Qwen3_5TextRotaryEmbedding", axes=3, width=256)
    glm = {"rope_type": "default", "mrope_section": [8, 12, 12], "partial_rotary_factor": 0.5, "rope_theta": 10000.0}
    glm = {"model_type": "glm4v", "text_config": {"model_type": "glm4v_text", "hidden_size": 4096, "num_attention_heads": 32, "rope_parameters": glm}}
    yield Config("glm-4.1v", glm, "Glm4vTextRotaryEmbedding", layout="repeated", axes=3, width=128)
    ernie = {"model_type": "ernie4_5_vl_moe_text", "hidden_size": 2560, "num_attention_heads": 20, "rope_theta": 500000, "rope_scaling": {"type": "default", "mrope_section": [22, 22, 20]}}
    yield Config("ernie-4.5-vl", ernie, "Ernie4_5_VLMoeTextRotaryEmbedding", layout="repeated", axes=3)


def configuration(case):
    """transformers' object for the part that the case chooses."""
    config = AutoConfig.for_model(**json.loads(json.dumps(case.config)))
    for part in filter(None, case.given.get("sub_config", "").split(".")):
        config = getattr(config, part)
    return getattr(config, "text_config", None) or config


def rotary_of(case):
    config = configuration(case)
    model = type(config).__module__.split(".")[-2]
    arguments = {"layout": case.layout, "apply": case.apply}
    if case.complex:
        return ComplexRotary(model, case.rotary, config, **arguments)
    rotary = Rotary(model, case.rotary, config, layer_type=case.given.get("layer_type"), **arguments)
    if case.apply == "rotate_half":  # what such models do with it, written out
        turn = rotary.apply_function
        rotary.apply_function = lambda q, k, cos, sin: [q * cos + turn(q) * sin]
    if "Vision" in case.rotary:  # takes [tokens, axes]
        rotary.tables = lambda positions, dtype=None: [
            t.reshape(len(positions), -1) for t in rotary.embedding(torch.zeros(1), torch.tensor(positions))
        ]
    return rotary


def record(case):
    rotary = rotary_of(case)
    # Where the length decides, the sequence's last token stands beside the one that is looked at.
    last = case.given.get("sequence_length", 0) - 1

    def positions(at):
        first = at[: case.axes] if case.axes > 1 else at[0]
        return [first, last] if last > 0 else [first]

    cos, sin = (table[0] for table in rotary.compute(positions([1, 1, 1])))
    pairs = sample(len(cos), MOST_PAIRS, [1, 2, 3])
    begin, end = case.lanes
    width = case.width or (end if begin else 2 * len(cos))
    at = positions([3, 5, 7])
    heads = np.tile(input_lanes(width), (len(at), 1))
    turned = rotary.rotator(at, begin, end)["f32"](heads)[0]
    out = {"name": case.name, "upstream": f"{packages()} {case.rotary}", "given": case.given, "config": case.config}
    out |= {"pairs": pairs, "cos": [float32(cos[j]) for j in pairs], "sin": [float32(sin[j]) for j in pairs]}
    out |= {"position": at[0] if case.axes > 1 else [at[0]], "rotated": [float(f"{v:.6g}") for v in turned]}
    return out


def cases():
    for family in (models, scalings, latent_attention, several_axes):
        yield from family()


def records():
    return [record(case) for case in cases()]


def read():
    return json.loads(GOLDEN.read_text())


def drift():
    """What differs from the values that are kept: a line per case."""
    kept = {case["name"]: case for case in read()}
    return [f"{case['name']}: differs from {GOLDEN}" for case in records() if case != kept.get(case["name"])]


if __name__ == "__main__":
    torch.set_num_threads(1)
    write(GOLDEN, records())
