# SPDX-License-Identifier: Apache-2.0
"""moves.py BUILD: the gate of docs/move-keys.md on transformers. For every rope type, a tiny random model prefills one
prompt at two offsets. Its caches must agree under the model's own spec after a move, and under no other.

Prints a row per model and exits with 1 if one is wrong. Models without trained weights suffice: the keys of all layers
differ by the move alone.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

TOKENS, OFFSET, HEADS, HEAD_DIM, LAYERS, THETA = 24, 1000, 2, 64, 2, 10000.0
RIGHT = 3e-5  # relative RMS in f32: transformers' own angles are f32 products
WRONG = 0.05

# What a rope type needs beside its name. Positions stay below the original length, where no frequency changes.
PARAMETERS = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 4096},
    "longrope": {
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
        "short_factor": [1.0 + 0.01 * i for i in range(HEAD_DIM // 2)],
        "long_factor": [1.0 + 0.1 * i for i in range(HEAD_DIM // 2)],
    },
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 4096},
    "proportional": {"partial_rotary_factor": 0.5},
}


def config_of(rope_type):
    return LlamaConfig(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=16384,
        rope_parameters={"rope_type": rope_type, "rope_theta": THETA} | PARAMETERS[rope_type],
    )


def prefill(model, ids, offset):
    """The cached keys of every layer, [heads, tokens, head_dim], of a prompt that stands alone at `offset`."""
    cache = DynamicCache(config=model.config)
    positions = torch.arange(offset, offset + ids.shape[1])
    with torch.no_grad():
        # Attention among the prompt's tokens only, whatever their positions.
        model.model(ids, position_ids=positions[None], past_key_values=cache, cache_position=torch.arange(ids.shape[1]))
    return [layer.keys[0] for layer in cache.layers]


def compare(build, folder, config, spec):
    """The largest relative RMS difference of a layer."""
    (folder / "spec.json").write_text(json.dumps(spec))
    command = [build / "client/cli/phasor", "move-keys", "--compare", "--json", "--layout", "hnd", "--code", "float32"]
    command += ["--pages", "1", "--page-size", str(TOKENS), "--heads", str(HEADS), "--head-dim", str(HEAD_DIM)]
    command += ["--spec", folder / "spec.json", "--run", f"0:{TOKENS}:0:{OFFSET}", "--tolerance", str(RIGHT)]
    for layer in range(config.num_hidden_layers):
        command += ["--input", folder / f"at0.{layer}", "--to-input", folder / f"moved.{layer}"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return max(layer["relative_rms"] for layer in json.loads(done.stdout)["differences"])


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    torch.manual_seed(1)
    failed = []
    types = ["default", *sorted(ROPE_INIT_FUNCTIONS)]
    for rope_type in dict.fromkeys(types):
        if rope_type not in PARAMETERS:
            failed.append(rope_type)
            print(f"FAIL {rope_type}: a rope type without a case here")
            continue
        config = config_of(rope_type)
        model = LlamaForCausalLM(config).eval()
        ids = torch.randint(0, 64, (1, TOKENS))
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for offset, file in ((0, "at0"), (OFFSET, "moved")):
                for layer, keys in enumerate(prefill(model, ids, offset)):
                    (folder / f"{file}.{layer}").write_bytes(keys.contiguous().numpy().tobytes())
            written = json.loads(config.to_json_string(use_diff=False))
            # Two rules depend on the length; both caches are below the original one.
            length = {"sequence_length": OFFSET + TOKENS} if rope_type in ("dynamic", "longrope") else {}
            right = {"config_json": json.dumps(written)} | length
            plain = {"preset": "rope-half-split", "head_dim": HEAD_DIM, "rope_theta": THETA}
            neighbours = {
                "other theta": right | {"config_json": json.dumps(changed(written, rope_theta=500000.0))},
                "other pairing": {"preset": "rope-interleaved", "head_dim": HEAD_DIM, "rope_theta": THETA},
                "other window": plain | {"rotary_dim": HEAD_DIM // 4},
            }
            # Below the original length a dynamic or default model is the plain one.
            if rope_type not in ("default", "dynamic"):
                neighbours["without scaling"] = plain
            found = compare(build, folder, config, right)
            others = {label: compare(build, folder, config, spec) for label, spec in neighbours.items()}
        good = found <= RIGHT and all(difference >= WRONG for difference in others.values())
        failed += [] if good else [rope_type]
        said = ", ".join(f"{label} {difference:.2g}" for label, difference in others.items())
        print(f"{'PASS' if good else 'FAIL'} {rope_type}: right {found:.2g}; {said}", flush=True)
    print(f"{len(dict.fromkeys(types)) - len(failed)} of {len(dict.fromkeys(types))} rope types pass the gate")
    return 1 if failed else 0


def changed(config, **parameters):
    return config | {"rope_parameters": config["rope_parameters"] | parameters}


if __name__ == "__main__":
    sys.exit(main())
