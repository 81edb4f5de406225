# SPDX-License-Identifier: Apache-2.0
"""llama_states.py BUILD: `phasor check-cache` on states that llama.cpp itself saves. Tiny random models of one layer, whose
keys depend on token and position only, read a prompt that begins and ends with the same tokens; the server saves its slot.
Under the model's own rotation the two runs of tokens fit, in every type of keys, and a wrong base is named. llama.cpp's context
shift fits for plain models; under YaRN it multiplies keys by the amplitude, and check-cache says so.

Prints a row per case and exits with 1 if one is wrong."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import urllib.request

import gguf
import numpy as np
import xllamacpp

HEADS, HEAD_DIM, WIDTH, WORDS, THETA, OFFSET, TOKENS = 2, 64, 128, 300, 500000.0, 1000, 16
YARN = {"yarn": {"factor": 4.0, "original_max_position_embeddings": 4096}}
# Architecture -> pairs of its keys in llama.cpp, and lanes that rotate.
ARCHITECTURES = {"llama": ("interleaved", HEAD_DIM), "qwen2": ("half-split", HEAD_DIM), "phi3": ("half-split", HEAD_DIM // 2)}

# Architecture, type of keys, YaRN.
PREFILLS = [("llama", kind, False) for kind in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1")]
PREFILLS += [("qwen2", "F16", False), ("qwen2", "Q8_0", True), ("phi3", "F16", False), ("llama", "F16", True)]
SHIFTS = [("llama", "F16", False), ("qwen2", "F32", False), ("llama", "F16", True), ("qwen2", "Q8_0", True)]


def write_model(path, architecture, yarn):
    chance = np.random.default_rng(1)
    model = gguf.GGUFWriter(str(path), architecture)
    model.add_context_length(16384)
    model.add_embedding_length(WIDTH)
    model.add_block_count(1)
    model.add_feed_forward_length(WIDTH)
    model.add_head_count(HEADS)
    model.add_head_count_kv(HEADS)
    model.add_key_length(HEAD_DIM)
    model.add_value_length(HEAD_DIM)
    model.add_rope_freq_base(THETA)
    model.add_rope_dimension_count(ARCHITECTURES[architecture][1])
    model.add_layer_norm_rms_eps(1e-5)
    if yarn:
        model.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        model.add_rope_scaling_factor(YARN["yarn"]["factor"])
        model.add_rope_scaling_orig_ctx_len(YARN["yarn"]["original_max_position_embeddings"])
    model.add_tokenizer_model("llama")
    model.add_token_list([f"<{i}>".encode() for i in range(WORDS)])
    model.add_token_scores([0.0] * WORDS)
    model.add_token_types([3, 3, 2] + [1] * (WORDS - 3))
    model.add_bos_token_id(1)
    model.add_eos_token_id(2)
    model.add_unk_token_id(0)
    shapes = {"token_embd.weight": (WORDS, WIDTH), "output.weight": (WORDS, WIDTH), "blk.0.attn_output.weight": (WIDTH, WIDTH),
              "blk.0.ffn_down.weight": (WIDTH, WIDTH)}  # fmt: skip
    if architecture == "phi3":
        shapes |= {"blk.0.attn_qkv.weight": (3 * WIDTH, WIDTH), "blk.0.ffn_up.weight": (2 * WIDTH, WIDTH)}
    else:
        shapes |= {f"blk.0.attn_{name}.weight": (WIDTH, WIDTH) for name in "qkv"}
        shapes |= {f"blk.0.ffn_{name}.weight": (WIDTH, WIDTH) for name in ("gate", "up")}
    for name, shape in shapes.items():
        model.add_tensor(name, chance.standard_normal(shape).astype(np.float32) * (1 if name.startswith("token") else 0.3))
    for name in ("output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"):
        model.add_tensor(name, np.ones(WIDTH, np.float32))
    if architecture == "qwen2":
        for name in "qkv":
            model.add_tensor(f"blk.0.attn_{name}.bias", np.zeros(WIDTH, np.float32))
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


def serve(folder, kind, shift):
    """Runs a server in this process, which then ends: the binding cannot stop one. Saves before.state and, after a context
    shift, after.state."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(folder / "model.gguf")
    parameters.n_ctx = 256 if shift else 2048
    parameters.n_parallel = 1
    parameters.port = 0
    parameters.warmup = False
    parameters.ctx_shift = shift
    parameters.endpoint_slots = True
    parameters.slot_save_path = f"{folder}/"
    parameters.cpuparams.n_threads = 2
    parameters.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{kind}")
    if kind != "F16":
        parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    server = xllamacpp.Server(parameters)

    def post(route, **body):
        request = urllib.request.Request(server.listening_address + route, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    chance = random.Random(3)
    words = lambda count: [chance.randrange(5, WORDS) for _ in range(count)]
    repeated = words(TOKENS)
    prompt = words(240) if shift else repeated + words(OFFSET - TOKENS) + repeated
    post("/completion", prompt=prompt, n_predict=1, id_slot=0, cache_prompt=True)
    post("/slots/0?action=save", filename="before.state")
    if shift:
        post("/completion", prompt=prompt, n_predict=40, id_slot=0, cache_prompt=True, ignore_eos=True, temperature=0)
        post("/slots/0?action=save", filename="after.state")
    sys.stdout.flush()
    os._exit(0)


def check(build, folder, architecture, yarn, theta, *arguments):
    """The exit status and report of check-cache."""
    pairing, lanes = ARCHITECTURES[architecture]
    command = [build / "client/cli/phasor", "check-cache", "--json", "--preset", f"rope-{pairing}", "--head-dim", HEAD_DIM]
    command += ["--rope-theta", theta, "--rotary-dim", lanes, "--input", folder / "before.state", *arguments]
    command += ["--rope-scaling", json.dumps(YARN)] if yarn else []
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return done.returncode, json.loads(done.stdout)


def run(build, architecture, kind, yarn, shift):
    """Whether a case is as it should be, and what was found."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder / "model.gguf", architecture, yarn)
        command = [sys.executable, __file__, "--serve", name, kind, *(["--shift"] if shift else [])]
        served = subprocess.run(command, capture_output=True, text=True)
        if served.returncode != 0:
            return False, f"llama.cpp failed: {served.stderr.strip().splitlines()[-1]}"
        if shift:
            # Half of the 254 tokens behind the first one were dropped: 128 became 1.
            where = ("--to-input", folder / "after.state", "--from", 128, "--to", 1, "--count", 100)
        else:
            where = ("--from", 0, "--to", OFFSET, "--count", TOKENS)
        status, report = check(build, folder, architecture, yarn, THETA, *where)
        rms = report["layers"][0]["relative_rms"]
        if shift and yarn:
            changes = [d["changes"] for d in report["diagnoses"]]
            return (status, changes) == (1, [["amplitude"]]), f"relative RMS {rms:.2g}; {report['diagnoses'][0]['says']}"
        wrong_status, wrong = check(build, folder, architecture, yarn, 10000, *where)
        named = [d["changes"] for d in wrong["diagnoses"]] == [["rope_theta"]]
        return status == 0 and wrong_status == 1 and named, f"relative RMS {rms:.2g}; base 10000: {wrong['diagnoses'][0]['says']}"


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    cases = [(*case, False) for case in PREFILLS] + [(*case, True) for case in SHIFTS]
    good = 0
    for architecture, kind, yarn, shift in cases:
        right, said = run(build, architecture, kind, yarn, shift)
        good += right
        name = f"{architecture} {kind}{' YaRN' if yarn else ''}{', context shift' if shift else ''}"
        print(f"{'PASS' if right else 'FAIL'} {name}: {said}", flush=True)
    print(f"{good} of {len(cases)} states of llama.cpp are judged right")
    return 0 if good == len(cases) else 1


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(pathlib.Path(sys.argv[2]), sys.argv[3], "--shift" in sys.argv)
    sys.exit(main())
