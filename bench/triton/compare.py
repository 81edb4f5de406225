# SPDX-License-Identifier: Apache-2.0
"""compare.py SERVER STUBS OUT.json [--quick]: compares Phasor with Triton serving the same rotation.

Triton's own clients call both: tritonclient and, if a Debian with a newer glibc can be set up for it,
perf_analyzer. The servers run at the same time and are called in turn. Every answer is compared with
Phasor's before it is timed. docs/benchmarks.md explains the rows.
"""

import base64
import contextlib
import csv
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import shared_memory

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/peers"), str(ROOT / "tests/accept")]
import running
import triton_servers
from harness import Report, median_seconds

# The angles' table is made in float64 and rounded once; the products are float32.
TOLERANCE = 1e-6
TARGETS = {1: 5.0, 1024: 3.0}
HEADS, WIDTH = 32, 128
TRIXIE = ROOT / "tests/oip/trixie.sh"
INSIDE = ROOT / "build/trixie/tmp"


class Rotation:
    """A call to a server: [tokens, heads, width] in float32 both ways, in the message or in system shared memory."""

    def __init__(self, address, model, positions, q, shared):
        self.client = grpcclient.InferenceServerClient(address)
        self.model, self.q, self.shared = model, q, shared
        self.inputs = [
            grpcclient.InferInput("POSITIONS", list(positions.shape), "INT64").set_data_from_numpy(positions),
            grpcclient.InferInput("Q", list(q.shape), "FP32"),
        ]
        self.output = grpcclient.InferRequestedOutput("Q_OUT")
        self.regions = []
        if shared:
            self.inputs[1].set_shared_memory(self._region("q"), q.nbytes)
            self.output.set_shared_memory(self._region("out"), q.nbytes)
        else:
            self.inputs[1].set_data_from_numpy(q)

    def _region(self, name):
        """Registers a region that holds q, and returns its name."""
        name = f"phasor_bench_{id(self)}_{name}"
        handle = shared_memory.create_shared_memory_region(name, f"/{name}", self.q.nbytes)
        shared_memory.set_shared_memory_region(handle, [self.q])
        self.client.register_system_shared_memory(name, f"/{name}", self.q.nbytes)
        self.regions.append((name, handle))
        return name

    def __call__(self):
        return self.client.infer(self.model, self.inputs, outputs=[self.output])

    def answer(self):
        result = self()
        if self.shared:
            return shared_memory.get_contents_as_numpy(self.regions[1][1], np.float32, self.q.shape).copy()
        return result.as_numpy("Q_OUT")

    def close(self):
        for name, handle in self.regions:
            self.client.unregister_system_shared_memory(name)
            shared_memory.destroy_shared_memory_region(handle)
        self.client.close()


def inputs_of(tokens):
    random = np.random.default_rng(3)
    positions = random.integers(0, 131072, tokens)
    return positions, random.standard_normal((tokens, HEADS, WIDTH), dtype=np.float32)


def bench(report, settings, servers, tokens, shared):
    positions, q = inputs_of(tokens)
    with contextlib.ExitStack() as stack:
        calls = {}
        for name, (address, model) in servers.items():
            calls[name] = Rotation(address, model, positions, q, shared)
            stack.callback(calls[name].close)
        want = calls["phasor"].answer()
        for name, call in calls.items():
            difference = float(np.abs(call.answer() - want).max())
            if difference > TOLERANCE * float(np.abs(q).max()):
                sys.exit(f"{name}: its answer differs from Phasor's by {difference:.3g}")
        if np.array_equal(want, q):
            sys.exit("nothing was rotated")
        seconds = median_seconds(calls, **settings)
    add_rows(report, "triton_rope_shm" if shared else "triton_rope", tokens, seconds, with_target=not shared)


def add_rows(report, name, tokens, seconds, with_target):
    """Adds a row for each Triton. The target is in the row of the fastest one."""
    others = [other for other in seconds if other != "phasor"]
    best = min(others, key=seconds.get)
    row = {"name": name, "shape": f"T={tokens} {HEADS}q x{WIDTH} half-split", "dtype": "FLOAT32", "threads": os.cpu_count(), "cache": "warm"}
    for other in others:
        target = TARGETS[tokens] if with_target and other == best else None
        report.add(row, seconds["phasor"], other + (" (best)" if other == best else ""), seconds[other], target)


def bench_perf_analyzer(report, quick, servers, tokens):
    """The same calls one at a time, by Triton's profiler in C++: medians over rounds of its median latency."""
    tensors = {"POSITIONS": inputs_of(tokens)[0], "Q": inputs_of(tokens)[1]}
    data = {n: {"content": {"b64": base64.b64encode(t.tobytes()).decode()}, "shape": t.shape} for n, t in tensors.items()}
    made = subprocess.run([TRIXIE, "true"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if made.returncode != 0:
        raise RuntimeError((made.stdout + made.stderr).strip())
    (INSIDE / "data.json").write_text(json.dumps({"data": [data]}), encoding="utf-8")
    seconds = {name: [] for name in servers}
    for _ in range(1 if quick else 3):
        for name, (address, model) in servers.items():
            seconds[name].append(perf_analyzer_seconds(address, model))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    add_rows(report, "triton_rope_pa", tokens, medians, with_target=True)


def perf_analyzer_seconds(address, model):
    out = INSIDE / "bench.csv"
    out.unlink(missing_ok=True)
    command = [TRIXIE, "perf_analyzer", "-i", "grpc", "-u", address, "-m", model, "-f", "/tmp/bench.csv"]
    command += ["--input-data=/tmp/data.json", "--concurrency-range=1"]
    command += ["--measurement-interval=1000", "--stability-percentage=999"]  # three windows, however much they differ
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise RuntimeError((done.stdout + done.stderr).strip())
    return int(next(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))["p50 latency"]) / 1e6


def start_servers(stack, server, stubs):
    """Starts all servers that run here, at least one Triton, and yields {name: (address, model)}."""
    kinds = {"C++ backend": triton_servers.cpp_backend}
    for library in ("numpy", "torch"):
        kinds[f"Python backend, {library}"] = functools.partial(triton_servers.python_backend, library, stubs)
        kinds[f"PyTriton, {library}"] = functools.partial(triton_servers.pytriton, library, stubs)
    started = {}
    for kind, start in kinds.items():
        try:
            started[kind] = (stack.enter_context(start()), "rope")
        except RuntimeError as error:
            print(f"SKIP {kind}: {error}", flush=True)
    if not started:
        sys.exit("SKIP: Triton does not start here, see above")
    started["phasor"] = (stack.enter_context(running.server([server, "--shared-memory"])), "rope-half-split")
    return started


def main():
    arguments = [a for a in sys.argv[1:] if a != "--quick"]
    if len(arguments) != 3:
        sys.exit("usage: compare.py SERVER STUBS OUT.json [--quick]")
    server, stubs, out = arguments
    quick = "--quick" in sys.argv
    settings = {"rounds": 2, "round_seconds": 0} if quick else {"rounds": 15, "round_seconds": 0.1}
    with contextlib.ExitStack() as stack:
        servers = start_servers(stack, server, stubs)
        report = Report("-", quick, "bench_triton", out)
        for tokens in TARGETS:
            bench(report, settings, servers, tokens, shared=False)
        for tokens in TARGETS:
            bench(report, settings, servers, tokens, shared=True)
        try:
            for tokens in TARGETS:
                bench_perf_analyzer(report, quick, servers, tokens)
        except RuntimeError as error:
            print(f"SKIP perf_analyzer: {error}", flush=True)
    report.finish()


main()
