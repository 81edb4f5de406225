# SPDX-License-Identifier: Apache-2.0
"""bench.py OUT.json [--quick]: calls of the Python package beside those of other libraries, in turn.

Every peer's result is compared with Phasor's first. `baseline` is a peer, and `ratio` how many
times as long it takes. Everything runs on one thread, except for servers."""

import argparse
import asyncio
import concurrent.futures
import importlib.util
import os
import pathlib
import site
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import harness

import phasor
from phasor.testing import Server

if os.environ.get("PHASOR_BENCH_CLIENTS"):
    site.addsitedir(os.environ["PHASOR_BENCH_CLIENTS"])

SPEC = phasor.Spec("llama-3", head_dim=128)
THETA = 500000.0
TOLERANCE = 2e-2  # peers have f32 angles


def installed(*names):
    return all(importlib.util.find_spec(name) is not None for name in names)


# --- in process -----------------------------------------------------------------------------------


def numpy_rotation(q, k, positions):
    """What a program without a library writes: angles, tables, rotation."""
    half = q.shape[-1] // 2
    angles = positions[:, None].astype(np.float32) * (THETA ** -(np.arange(half) / half)).astype(np.float32)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    return [
        np.concatenate((x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin), -1) for x in (q, k)
    ]


def torch_peers(q, k, positions):
    """{name: function} of what is installed. All compute the angles too, as Phasor does."""
    if not installed("torch"):
        return {}
    import torch

    torch.set_num_threads(1)
    tq, tk, ids = torch.from_numpy(q), torch.from_numpy(k), torch.from_numpy(positions)
    inv_freq = 1.0 / THETA ** (torch.arange(0, 128, 2).float() / 128)

    def eager():
        angles = ids[:, None].float() * inv_freq
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        return [torch.cat((x[..., :64] * cos - x[..., 64:] * sin, x[..., 64:] * cos + x[..., :64] * sin), -1) for x in (tq, tk)]

    peers = {"torch eager": torch.inference_mode()(eager)}
    if installed("transformers"):
        from transformers.models.llama import modeling_llama as llama

        config = llama.LlamaConfig(head_dim=128, rope_parameters={"rope_type": "default", "rope_theta": THETA})
        rotary = llama.LlamaRotaryEmbedding(config)

        def transformers():
            cos, sin = rotary(tq, ids[None])
            return [x[0] for x in llama.apply_rotary_pos_emb(tq[None], tk[None], cos, sin, unsqueeze_dim=2)]

        peers["transformers"] = torch.inference_mode()(transformers)
    if installed("rotary_embedding_torch"):
        from rotary_embedding_torch import RotaryEmbedding

        embedding = RotaryEmbedding(dim=128, theta=THETA, cache_if_possible=False)
        peers["rotary-embedding-torch"] = torch.inference_mode()(lambda: interleaved(embedding, tq, tk, int(positions[0])))
    return peers


def interleaved(embedding, q, k, offset):
    return [embedding.rotate_queries_or_keys(x, seq_dim=-3, offset=offset) for x in (q, k)]


def check(name, got, wanted):
    if name == "rotary-embedding-torch":  # pairs neighbours
        return
    for mine, theirs in zip(wanted, got, strict=True):
        error = np.abs(np.asarray(theirs) - mine).max()
        if error > TOLERANCE:
            sys.exit(f"{name}: differs by {error}: the benchmark would compare different things")


def in_process(report, tokens, rounds, round_seconds):
    rng = np.random.default_rng(1)
    q, k = (rng.standard_normal((tokens, heads, 128)).astype(np.float32) for heads in (32, 8))
    positions = np.arange(100, 100 + tokens)
    candidates = {"phasor": lambda: phasor.apply_rope(q, k, positions=positions, spec=SPEC)}
    candidates["numpy"] = lambda: numpy_rotation(q, k, positions)
    candidates |= torch_peers(q, k, positions)
    for name, run in candidates.items():
        check(name, run(), candidates["phasor"]())
    mine_q, mine_k = q.copy(), k.copy()
    candidates["in place"] = lambda: phasor.apply_rope_(mine_q, mine_k, positions=positions, spec=SPEC)
    times = harness.median_seconds(candidates, rounds, round_seconds)
    row = {"name": "py_inproc_rope", "shape": f"T={tokens} 32q+8k x 128", "dtype": "float32", "threads": 1, "cache": "hot"}
    fastest = min((name for name in times if name not in ("phasor", "in place")), key=times.get)
    for name in sorted(times.keys() - {"phasor", "in place"}):
        report.add(row, times["phasor"], name, times[name], 4 if tokens == 1 and name == fastest else None)
    in_place = row | {"name": "py_inproc_inplace"}
    report.add(in_place, times["in place"], "phasor, new arrays", times["phasor"])
    if "torch eager" in times:  # which makes new arrays: for many tokens that is half of Phasor's time
        report.add(in_place, times["in place"], "torch eager", times["torch eager"], 10 if tokens == 1024 else None)


# --- remote ---------------------------------------------------------------------------------------


def triton_call(server, q, positions):
    """A function that makes the same call with tritonclient, or None."""
    if not installed("tritonclient", "grpc"):
        return None
    import tritonclient.grpc as grpcclient

    client = grpcclient.InferenceServerClient(server.target)

    def call():
        ids = grpcclient.InferInput("POSITIONS", [len(positions)], "INT64").set_data_from_numpy(positions)
        values = grpcclient.InferInput("Q", list(q.shape), "FP32").set_data_from_numpy(q)
        return client.infer("llama-3", [ids, values]).as_numpy("Q_OUT")

    return call


def remote(report, server, tokens, heads, rounds, round_seconds, target):
    q = np.random.default_rng(2).standard_normal((tokens, heads, 128)).astype(np.float32)
    positions = np.arange(tokens)
    sending, staging = phasor.Client(server.target, staging_bytes=0), phasor.Client(server.target)
    shared = staging.empty(q.shape)
    shared[...] = q
    candidates = {
        "staged": lambda: staging.apply_rope(q, positions=positions, spec="llama-3"),
        "sent": lambda: sending.apply_rope(q, positions=positions, spec="llama-3"),
        "shared": lambda: staging.apply_rope_(shared, positions=positions, spec="llama-3"),
    }
    triton = triton_call(server, q, positions)
    if triton is not None:
        if triton().tobytes() != candidates["sent"]().tobytes():
            sys.exit("tritonclient: other bytes")
        candidates["tritonclient"] = triton
    times = harness.median_seconds(candidates, rounds, round_seconds)
    row = {"shape": f"T={tokens} {heads} x 128, Unix socket", "dtype": "float32", "threads": 1, "cache": "hot"}
    for name in ("staged", "sent", "shared"):
        baseline = "tritonclient" if triton is not None else "sent"
        report.add(row | {"name": f"py_remote_{name}"}, times[name], baseline, times[baseline], target if triton and name == "staged" else None)


def in_flight(report, server, rounds, round_seconds):
    """64 calls in flight: one event loop, and 64 threads."""
    q = np.ones((1, 1, 128), np.float32)
    calls = 64

    async def together(client):
        await asyncio.gather(*(client.apply_rope(q, positions=1, spec=SPEC) for _ in range(calls)))

    client = phasor.Client(server.target)
    with asyncio.Runner() as runner, concurrent.futures.ThreadPoolExecutor(calls) as pool:
        joining, single = phasor.AsyncClient(server.target), phasor.AsyncClient(server.target, join_bytes=0)
        candidates = {
            "async": lambda: runner.run(together(joining)),
            "single": lambda: runner.run(together(single)),
            "threads": lambda: list(pool.map(lambda _: client.apply_rope(q, positions=1, spec=SPEC), range(calls))),
        }
        times = harness.median_seconds(candidates, rounds, round_seconds)
        joining.close()
        single.close()
    row = {"name": "py_async", "shape": f"{calls} in flight, 1 x 1 x 128", "dtype": "float32", "threads": 1, "cache": "hot"}
    report.add(row, times["async"] / calls, "64 threads, Client", times["threads"] / calls, 2)
    report.add(row | {"name": "py_async_single"}, times["single"] / calls, "64 threads, Client", times["threads"] / calls)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    rounds, seconds = (1, 0.01) if arguments.quick else (11, 0.1)
    report = harness.Report(phasor.Client().info().cpu_target, arguments.quick, "bench_python", arguments.out)
    for tokens in (1, 1024):
        in_process(report, tokens, rounds, seconds)
    with Server() as server:
        remote(report, server, 1, 1, rounds, seconds, 1.4)
        remote(report, server, 2048, 32, rounds, seconds, 10)
        in_flight(report, server, rounds, seconds)
    report.finish()


if __name__ == "__main__":
    main()
