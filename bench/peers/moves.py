# SPDX-License-Identifier: Apache-2.0
"""moves.py OUT.json [--quick]: moves of cached keys by Phasor, LMCache's torch operation and ggml's K-shift, in turn.

The keys are those of Llama-3.1-8B. Phasor moves all layers in one call of its Python package, and resolves the spec in it.
Every peer has what it needs made beforehand: tables, graphs, positions. Its result is compared with Phasor's first.
docs/benchmarks.md explains the rows.
"""

import ctypes
import dataclasses
import importlib.util
import os
import pathlib
import sys

import numpy as np
from harness import Report, median_seconds

import phasor

LAYERS, HEADS, LANES, THETA, FROM, TO = 32, 8, 128, 500000.0, 1000, 3000
TARGET = 3.0
UNITS = {"bfloat16": (1, 2), "float16": (1, 2), "q8_0": (32, 34)}
# Relative RMS. One more rounding of the code, and angles in float32 or tables in bfloat16.
TOLERANCE = {"bfloat16": 0.006, "float16": 0.001, "q8_0": 0.003}


@dataclasses.dataclass
class Case:
    tokens: int
    code: str
    layout: str
    threads: int

    @property
    def token_bytes(self):
        lanes, size = UNITS[self.code]
        return HEADS * LANES // lanes * size

    def keys(self):
        """A pool, a row per layer; behind them the values, if the layout has those."""
        random = np.random.default_rng(1)
        layer = random.standard_normal((self.tokens, HEADS * LANES), dtype=np.float32)
        if self.code == "bfloat16":
            stored = (layer.view(np.uint32) >> 16).astype(np.uint16)
        elif self.code == "float16":
            stored = layer.astype(np.float16)
        else:
            blocks = layer.reshape(-1, 32)
            scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
            stored = np.concatenate((scale.view(np.uint8), np.rint(blocks / scale).astype(np.int8).view(np.uint8)), 1)
        return np.tile(stored.reshape(-1).view(np.uint8), (LAYERS * (2 if self.layout == "lmcache-2ltd" else 1), 1))

    def values(self, layer):
        """Stored keys of one layer as numbers."""
        if self.code == "bfloat16":
            return (layer.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        if self.code == "float16":
            return layer.view(np.float16).astype(np.float32)
        blocks = layer.reshape(-1, 34)
        return blocks[:, :2].copy().view(np.float16).astype(np.float32) * blocks[:, 2:].view(np.int8)


def moved_by_phasor(case, keys):
    client = phasor.Client("inproc:", threads=case.threads)
    layout = phasor.KeyLayout(case.layout, case.code, pages=1, page_size=case.tokens, heads=HEADS, head_dim=LANES, layers=LAYERS)
    preset = "rope-half-split" if case.code == "bfloat16" else "rope-interleaved"
    call = {
        "layouts": [layout],
        "specs": [phasor.KeySpec(phasor.Spec(preset, head_dim=LANES, rope_theta=THETA))],
        "layers": [phasor.KeyLayer(spec=0, layer=layer, copy_values=False) for layer in range(LAYERS)],
        "groups": [phasor.KeyGroup([phasor.KeyRun([0], count=case.tokens, from_=FROM, to=TO)])],
        "mode": "move",
    }
    return lambda: client.move_paged([keys], **call)


# --- peers: functions that move `keys` in place and return what keeps their memory --------------------


def lmcache(case, keys):
    """LMCache's operation on a chunk, layer by layer, with tables in the keys' type, as vLLM has them."""
    if case.code != "bfloat16":
        return None
    import torch

    torch.set_num_threads(case.threads)
    folder = pathlib.Path(importlib.util.find_spec("lmcache").submodule_search_locations[0])
    found = importlib.util.spec_from_file_location("pos_kernels", folder / "v1/platform/torch_ops/pos_kernels.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    chunk = torch.from_numpy(keys[:LAYERS]).view(torch.bfloat16).view(LAYERS, case.tokens, HEADS, LANES)
    half = LANES // 2
    angles = np.arange(TO + case.tokens)[:, None] * THETA ** (-np.arange(half) / half)
    table = torch.from_numpy(np.concatenate((np.cos(angles), np.sin(angles)), 1)).to(torch.bfloat16)
    old, new = torch.arange(FROM, FROM + case.tokens), torch.arange(TO, TO + case.tokens)

    def run():
        with torch.inference_mode():
            for layer in chunk:
                module.rotary_embedding_k_fused(old, new, layer, LANES, table, True)

    return run


def ggml_shift(case, keys):
    """The graph of llama.cpp's K-shift: ggml_rope over all cells of a layer, through float32 where keys are quantised."""
    if case.code == "bfloat16":  # ggml has no such rotation on CPUs
        return None
    import ggml

    kind = {"float16": ggml.GGML_TYPE_F16, "q8_0": ggml.GGML_TYPE_Q8_0}[case.code]
    context = ggml.ggml_init(ggml.ggml_init_params(mem_size=4 << 20, mem_buffer=None, no_alloc=True))
    distances = np.full(case.tokens, TO - FROM, np.int32)
    shift = ggml.ggml_new_tensor_1d(context, ggml.GGML_TYPE_I32, case.tokens)
    shift.contents.data = distances.ctypes.data
    scratch = np.zeros(case.tokens * HEADS * LANES if case.code == "q8_0" else 1, np.float32)
    graph = ggml.ggml_new_graph(context)
    rope = (None, LANES, 0, 0, THETA, 1.0, 0.0, 1.0, 32.0, 1.0)
    for layer in keys:
        cells = ggml.ggml_new_tensor_3d(context, kind, LANES, HEADS, case.tokens)
        cells.contents.data = layer.ctypes.data
        if case.code == "q8_0":
            wide = ggml.ggml_cast(context, cells, ggml.GGML_TYPE_F32)
            wide.contents.data = scratch.ctypes.data
            turned = ggml.ggml_cpy(context, ggml.ggml_rope_ext_inplace(context, wide, shift, *rope), cells)
        else:
            turned = ggml.ggml_rope_ext_inplace(context, cells, shift, *rope)
        ggml.ggml_build_forward_expand(graph, turned)
    parameters = ggml.ggml_threadpool_params_default(case.threads)
    pool = ggml.ggml_threadpool_new(ctypes.byref(parameters))
    plan = ggml.ggml_graph_plan(graph, case.threads, pool)
    work = np.empty(max(1, plan.work_size), np.uint8)
    plan.work_data = work.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))

    def run():
        ggml.ggml_graph_compute(graph, ctypes.byref(plan))

    run.keep = keys, distances, scratch, work, parameters
    run.close = lambda: (ggml.ggml_threadpool_free(pool), ggml.ggml_free(context))
    return run


PEERS = {"LMCache torch op": lmcache, "ggml K-shift": ggml_shift}


def bench(report, settings, case):
    row = {
        "name": "peer_move_keys",
        "shape": f"T={case.tokens} L={LAYERS} H={HEADS} {case.layout}",
        "dtype": case.code,
        "threads": case.threads,
        "cache": "DRAM" if case.token_bytes * case.tokens * LAYERS > 64 << 20 else "warm",
    }
    wanted = case.keys()
    ours = moved_by_phasor(case, wanted)
    ours()
    candidates, wanted = {"phasor": ours}, [case.values(wanted[layer]) for layer in (0, LAYERS - 1)]
    for name, peer in PEERS.items():
        keys = case.keys()
        try:
            run = peer(case, keys)
            if run is None:
                continue
            run()
        except Exception as error:  # whatever a library throws, the other peers go on
            report.skip(row, f"peer:{name}", f"{type(error).__name__}: {error}")
            continue
        got = [case.values(keys[layer]) for layer in (0, LAYERS - 1)]
        difference = max(float(np.linalg.norm(g - w) / np.linalg.norm(w)) for g, w in zip(got, wanted))
        if not difference < TOLERANCE[case.code]:
            report.skip(row, f"peer:{name}", f"its result differs by {difference:.3g}")
            continue
        candidates[name] = run
    seconds = median_seconds(candidates, **settings)
    for name in candidates.keys() - {"phasor"}:
        report.add(row, seconds["phasor"], f"peer:{name}", seconds[name], TARGET)
        getattr(candidates[name], "close", lambda: None)()


def main():
    arguments = [a for a in sys.argv[1:] if a != "--quick"]
    if len(arguments) != 1:
        sys.exit("usage: moves.py OUT.json [--quick]")
    quick = "--quick" in sys.argv
    settings = {"rounds": 2 if quick else 7, "round_seconds": 0 if quick else 0.05}
    report = Report(phasor.Client("inproc:").info().cpu_target, quick, "bench_move_keys beside peers", arguments[0])
    for threads in sorted({1, os.cpu_count()}):
        for tokens in (64,) if quick else (256, 4096):
            bench(report, settings, Case(tokens, "bfloat16", "lmcache-2ltd", threads))
            for code in ("float16", "q8_0"):
                bench(report, settings, Case(tokens, code, "llamacpp", threads))
    report.finish()


main()
