# SPDX-License-Identifier: Apache-2.0
"""peers.py SHIM OUT.json [--quick]: compares Phasor with numpy, onnxruntime, ggml and PyTorch on the same tensors.

Every peer's result is compared with Phasor's before it is timed. docs/benchmarks.md explains the rows.
"""

import dataclasses
import os
import sys

import numpy as np

import libraries
from harness import Report, median_seconds
from phasor_shim import Phasor

NUMPY = {"FLOAT32": np.float32, "FLOAT16": np.float16, "BFLOAT16": np.uint16}
# Differences that a peer's own rounding explains: float32 angles at position 131071, recurrences,
# 16-bit tables.
TOLERANCE = {"FLOAT32": 0.06, "FLOAT16": 0.06, "BFLOAT16": 0.2}
TARGET_IN_CACHE, TARGET_BEYOND = 1.5, 1.1
TARGET_ENCODE = {"numpy": 5.0, "torch eager": 5.0, "torch.compile": 3.0}


@dataclasses.dataclass
class RopeCase:
    tokens: int
    dtype: str
    interleaved: bool
    q_heads: int = 32
    k_heads: int = 8
    head_dim: int = 128
    positions: np.ndarray = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        decode = np.random.default_rng(7).integers(0, 131072, self.tokens)
        self.positions = decode if self.tokens <= 256 else np.arange(self.tokens, dtype=np.int64)

    def split(self, flat):
        """q and k of a buffer in which k follows q."""
        q_size = self.tokens * self.q_heads * self.head_dim
        q, k = flat[:q_size], flat[q_size:]
        return q.reshape(self.tokens, self.q_heads, -1), k.reshape(self.tokens, self.k_heads, -1)

    @property
    def size(self):
        return self.tokens * (self.q_heads + self.k_heads) * self.head_dim


def cache_bytes():
    try:
        return max(os.sysconf("SC_LEVEL3_CACHE_SIZE"), 1)
    except ValueError:
        return 32 << 20


def to_float(array):
    """The values of numpy or torch tensors. numpy's uint16 are the bits of bfloat16."""
    if not isinstance(array, np.ndarray):
        return array.float().numpy()
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def normal(case):
    values = np.resize(np.random.default_rng(1).standard_normal(min(case.size, 999983), dtype=np.float32), case.size)
    values[np.abs(values) < 1e-4] = 1e-4
    if case.dtype != "BFLOAT16":
        return values.astype(NUMPY[case.dtype])
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def working_peers(peers, want, tolerance, make):
    """{name: function} of the peers that run here and agree with `want` on the first and the last rows."""
    ends = np.r_[0 : min(8, len(want[0])), max(0, len(want[0]) - 8) : len(want[0])]
    want = [to_float(w[ends]) for w in want]
    found = {}
    for name, peer in peers.items():
        try:
            run = make(peer)
            if run is None:
                continue
            got = run()
        except Exception as error:  # whatever a library throws, the other peers go on
            print(f"SKIP {name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", flush=True)
            continue
        got = got if isinstance(got, (list, tuple)) else [got]
        difference = max(float(np.abs(to_float(g[ends]) - w).max()) for g, w in zip(got, want))
        if difference > tolerance:
            print(f"SKIP {name}: its result differs by {difference:.3g}", flush=True)
            continue
        found[name] = run
    return found


def bench_rope(report, settings, phasor, backend, threads, case):
    x, want = normal(case), np.zeros(case.size, NUMPY[case.dtype])
    y = x.copy()  # the tensor that peers write to and Phasor rotates in place; never zeros
    phasor.rope(backend, case, x, want)()
    peers = working_peers(
        libraries.ROPE, case.split(want), TOLERANCE[case.dtype], lambda peer: peer(case, x, y, threads)
    )
    ours = phasor.rope(backend, case, x, want)
    in_place = phasor.rope(backend, case, y, y)
    copy = libraries.copy(x, y, threads)
    seconds = median_seconds({"phasor": ours, "phasor in place": in_place} | copy | peers, **settings)
    beyond = x.nbytes >= cache_bytes()
    pairing = "interleaved" if case.interleaved else "half-split"
    row = {
        "name": "peer_rope",
        "shape": f"T={case.tokens} {case.q_heads}q+{case.k_heads}k x{case.head_dim} {pairing}",
        "dtype": case.dtype,
        "threads": threads,
        "cache": "DRAM" if beyond else "warm",
    }
    best = min(peers, key=seconds.get, default=None)
    for name in peers:
        target = (TARGET_BEYOND if beyond else TARGET_IN_CACHE) if name == best else None
        which = f"peer:{name}" + (" (best)" if name == best else "")
        report.add(row, seconds["phasor"], which, seconds[name], target, seconds.get("memory"))
    if best:
        report.add(row | {"name": "peer_rope_inpl"}, seconds["phasor in place"], f"peer:{best} (best)", seconds[best])
    for run in peers.values():
        getattr(run, "close", lambda: None)()


def bench_encode(report, settings, phasor, backends, threads, rows, dim, dtype):
    backend = backends[threads]
    out = np.zeros((rows, dim), NUMPY[dtype])
    ours = phasor.encode(backend, rows, dim, dtype, out)
    ours()
    peers = working_peers(libraries.ENCODE, [out], TOLERANCE[dtype], lambda peer: peer(rows, dim, dtype, threads))
    arithmetic = {"arithmetic": phasor.arithmetic(backends[1], rows, dim, dtype, threads)}
    fill = libraries.fill(out.copy(), threads)
    seconds = median_seconds({"phasor": ours} | arithmetic | fill | peers, **settings)
    least = max(seconds["arithmetic"], seconds.get("memory", 0))
    row = {
        "name": "peer_encode",
        "shape": f"{rows}x{dim} sin|cos",
        "dtype": dtype,
        "threads": threads,
        "cache": "DRAM" if out.nbytes >= cache_bytes() else "warm",
    }
    for name in peers:
        report.add(row, seconds["phasor"], f"peer:{name}", seconds[name], TARGET_ENCODE[name], least)


def main():
    arguments = [a for a in sys.argv[1:] if a != "--quick"]
    if len(arguments) != 2:
        sys.exit("usage: peers.py SHIM OUT.json [--quick]")
    quick = "--quick" in sys.argv
    settings = {"rounds": 2 if quick else 15, "round_seconds": 0 if quick else 0.05}
    phasor = Phasor(os.path.abspath(arguments[0]))
    backends = {threads: phasor.backend(threads) for threads in sorted({1, os.cpu_count()})}
    report = Report(phasor.target(backends[1]), quick, "bench_peers", arguments[1])
    encodes = [(64, 320), (4096, 256)] + ([] if quick else [(4096, 1536), (131072, 128)])
    token_counts = (32,) if quick else (1, 32, 512, 4096, 32768)
    for threads, backend in backends.items():
        for rows, dim in encodes:
            for dtype in ("FLOAT32", "BFLOAT16"):
                bench_encode(report, settings, phasor, backends, threads, rows, dim, dtype)
        for dtype, interleaved in (("FLOAT32", False), ("FLOAT32", True), ("BFLOAT16", False), ("FLOAT16", False)):
            for tokens in token_counts:
                bench_rope(report, settings, phasor, backend, threads, RopeCase(tokens, dtype, interleaved))
    report.finish()


main()
