# SPDX-License-Identifier: Apache-2.0
"""parity_configs.py [FILE]: what models compute with their own rounding, from their config.json alone.

The model's attention layer runs in bfloat16, float16 or float32 (rounding.py), and its rotation turns
random heads. parity_test.cc compares with them, as with the cases of parity.py. A case's spec is the
configuration and PRECISION_PARITY.
"""

import json
import pathlib
import sys

import torch

import upstream
from case import write
from parity import NAMES, numbers
from rounding import FAR, STEPS, captured, rotated
from upstream import config_classes, configuration, frequencies, observe

GOLDEN = pathlib.Path(__file__).parent / "golden" / "parity" / "configs.json"
PHI3 = {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 131072, "original_max_position_embeddings": 2048}
PHI3 |= {"rope_scaling": {"type": "longrope", "short_factor": [1 + j / 64 for j in range(32)], "long_factor": [1 + j * 1.25 for j in range(32)]}}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
LATENT = {"qk_nope_head_dim": 16, "qk_rope_head_dim": 32, "v_head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 4}
SMALL = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4}

# (class, fields, kind of layers, fields of the spec)
MODELS = [
    ("LlamaConfig", SMALL | {"rope_theta": 500000.0, "rope_scaling": LLAMA3, "max_position_embeddings": 131072}, "", {}),
    ("GPTNeoXConfig", {"hidden_size": 256, "num_attention_heads": 4}, "", {}),
    ("Qwen2VLTextConfig", SMALL | {"rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}}, "", {}),
    ("Gemma3TextConfig", {"head_dim": 64, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "full_attention", {}),
    ("Gemma3TextConfig", {"head_dim": 64, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "sliding_attention", {}),
    ("Phi3Config", PHI3, "", {"sequence_length": 2 * FAR + 1}),
    ("DeepseekV3Config", LATENT, "", {}),
    ("Olmo2Config", SMALL, "", {}),
    ("CohereConfig", SMALL, "", {}),
    ("Glm4Config", SMALL | {"head_dim": 64}, "", {}),
    ("GptOssConfig", {}, "", {}),
    ("Gemma4VisionConfig", {}, "", {}),
]


def case(name, fields, kind, given, dtype):
    model_type = config_classes()[name].model_type
    observed = {k or "": o for k, o in observe(name, fields).items()}[kind]
    seen, rotary = captured(name, configuration(config_classes()[name], fields), kind or None, dtype)
    values = frequencies(rotary)
    inv_freq = values[f"{kind}_inv_freq" if kind else "inv_freq"]
    part, turned = rotated(seen, dtype)
    x = torch.randn(5, observed.head_dim, generator=torch.Generator().manual_seed(2)).to(dtype)
    y = x.clone()
    window = slice(observed.begin, observed.begin + part.shape[1])
    x[:, window], y[:, window] = part, turned
    table = {row["model_type"]: row for row in json.loads((pathlib.Path(__file__).parents[2] / "kernels/spec/models.json").read_text())["models"]}
    row = table[model_type]
    tables = STEPS[tuple(row["parity"][2:])][0] or dtype
    amplitude = values.get(f"{kind}_attention_scaling" if kind else "attention_scaling", 1.0)
    axis = [max(range(observed.axes), key=lambda a: abs(p.angle[a])) for p in observed.pairs]
    near = [min(inv_freq, key=lambda f: abs(f - abs(p.angle[a]))) for p, a in zip(observed.pairs, axis)]
    used = torch.tensor(inv_freq if len(inv_freq) == len(axis) else near)
    at = torch.tensor([[FAR * probe[a] for a in axis] for probe in upstream.PROBE[:5]]).float()
    angles = at * used
    order = list(dict.fromkeys(axis)) if row.get("axes") else list(range(observed.axes))
    out = {"name": f"config {model_type} {kind} {NAMES[dtype]}".replace("  ", " "), "upstream": f"transformers {name}, its attention layer"}
    spec = {"config_json": json.dumps({"model_type": model_type} | fields), "precision": "PRECISION_PARITY"} | ({"layer_type": kind} if kind else {})
    out |= {"spec": spec | given, "positions": [[FAR * probe[a] for a in order] for probe in upstream.PROBE[:5]], "dtype": NAMES[dtype]}
    out |= {"inv_freq": numbers(used), "attention_factor": float(amplitude)}
    out |= {part: numbers((wave * amplitude).to(tables)) for part, wave in (("cos", angles.cos()), ("sin", angles.sin()))}
    return out | {"x": numbers(x), "y": numbers(y)}


def cases():
    for name, fields, kind, given in MODELS:
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            yield case(name, fields, kind, given, dtype)


if __name__ == "__main__":
    torch.set_num_threads(1)
    write(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN, list(cases()))
