# SPDX-License-Identifier: Apache-2.0
"""Checks the promises of the CUDA backend. Uses the results of the last `./dev test`, of `./dev
test --full` for long tests, and of `./dev gpu-test` for hardware: those in build/gpu-test/results, else the newest that
bench/results keeps."""

import json

import acceptance
from acceptance import ROOT, Fail, Miss, Skip, of_full, of_test, promised

TOPIC = "cuda"


def _results():
    """The folder of the last results, and how to name it."""
    here = ROOT / "build/gpu-test/results"
    kept = sorted((ROOT / "bench/results").glob("*/summary.txt"))
    if (here / "summary.txt").exists() or not kept:
        return here, ""
    return kept[-1].parent, f"kept in {kept[-1].parent.relative_to(ROOT)}: "


def of_gpu(promise, *steps):
    """A check: those steps of the last `./dev gpu-test` passed on a card, which is named."""

    def check():
        lines = _summary()
        said = [line for line in lines if line.startswith(tuple(f"{o}  {step}: " for o in ("PASS", "FAIL", "SKIP") for step in steps))]
        for outcome, kind in (("FAIL", Fail), ("SKIP", Skip)):
            if any(line.startswith(outcome) for line in said):
                raise kind("; ".join(line for line in said if line.startswith(outcome)))
        if len(said) != len(steps):
            raise Skip(f"the last ./dev gpu-test did not run {', '.join(steps)}")
        return _results()[1] + "; ".join([next(line for line in lines if line.startswith("card: "))] + said)

    return promised(promise, check)


def _summary():
    path = _results()[0] / "summary.txt"
    if not path.exists():
        raise Skip("NO HARDWARE HAS CONFIRMED THIS: no ./dev gpu-test has run here")
    lines = path.read_text(encoding="utf-8").splitlines()
    if not any(line.startswith("card: ") for line in lines):
        raise Skip("NO HARDWARE HAS CONFIRMED THIS: ./dev gpu-test found no CUDA device")
    return lines


def of_rows(promise, file, wanted, targeted=True):
    """A check: rows of a benchmark on a card whose `wanted` holds meet their targets; unless `targeted`, that there are some."""

    def check():
        _summary()
        path = _results()[0] / file
        if not path.exists():
            raise Skip(f"./dev gpu-test left no {file}")
        rows = [row for row in json.loads(path.read_text(encoding="utf-8")) if wanted(row) and (row["target"] or not targeted)]
        if not rows:
            raise Skip(f"{file} has no such row")
        said = "; ".join(
            f"{r['name']} {r['shape']} {r['dtype']} {r['cache']}: {r['ratio']:.2f} of {r['baseline']}" + (f", target {r['target']}" if r["target"] else "")
            for r in rows
        )
        if not all(row["met"] for row in rows if row["target"]):
            raise Miss(said)
        return _results()[1] + said

    return promised(promise, check)


CHECKS = [
    of_test("host: every kernel's bytes are the reference's over random jobs of every op, type, layout, misalignment, slicing", r"(asan/)?cuda_(items|item_positions|chunk|run_on_host|host_rows|row_program|divisor|lanes)_test"),
    of_test("host: the backend on a fake device, every call failing with every kind of error", r"(asan/|tsan/)?cuda_(cuda_backend|slots)_test"),
    of_test("bf16, f16 -> FLOAT8 with scale: the nearest finite value, the same bytes by every backend", r"(asan/)?(convert|rotary_outputs|paged_cache)_test"),
    of_test("keys and values into paged caches by slot mapping, as ml_dtypes and vLLM's reshape_and_cache_flash in numpy", r"e2e_client_paged_test|e2e\.pages"),
    of_test("device-resident tensors and pages are touched where they lie, on the fake device", r"(asan/)?cuda_(device_tensors|job_rows|host_copies)_test"),
    of_test("one binary: without a driver it says so, a launch fails and the process lives", r"cuda_driver_test"),
    of_test("machine code for sm_80 and 90: no spills, no local memory, no calls; plain kernels: four blocks resident, all loads in flight, instructions by pipe", r"cuda_machine_code"),
    of_test("the grid gives every thread of 20 to 148 multiprocessors a unit from 64 tokens on, as far as there are units", r"(asan/)?cuda_grid_test"),
    of_test("1 to 32768 tokens on seven cards: blocks, waves, bytes in flight; 0.9 of a copy predicted from 4096 on, and as the H100 reached", r"cuda_launch_table"),
    of_test("a call on device memory is a launch and a wait; what the host does for it is counted", r"cuda_device_tensors_test|bench_instructions"),
    of_test("in place from one pairing to the other, on the fake device", r"(asan/)?cuda_(items|device_tensors)_test"),
    of_test("keys of every code and layout are moved in the device's memory with the CPU's bytes, or the call says what became of them; on the host", r"(asan/)?cuda_(key_items|device_keys)_test"),
    of_test("errors of the CUDA runtime: none is left behind, a reset is judged by the next call, a mapping begins where it was opened", r"cuda_driver_calls_test"),
    of_full("the same for 75, 80, 86, 89, 90, 100 and 120", r"cuda_machine_code_of_releases"),
    of_full("gpu-test's package on a Debian without our libraries: needs the C library only, fails with no CUDA device", r"gpu_package_on_debian"),
    of_test("./dev bench cuda on the host: every row is there, its results compared", r"bench_cuda_dry"),
    of_test("256 one-token requests are one launch on the fake device", r"cuda_cuda_backend_test"),
    of_test("tensors on the device are computed where they lie; every fault there is answered by the CPU or ABORTED, and the region dirty", r"(asan/)?(cuda_device_(tensors|memory)_test|server_test)"),
    of_test("a lost device is tried again in a fresh context, or asks for another process; health says so", r"(asan/|tsan/)?(cuda_device_life_test|server_engine_test|server_test)"),
    of_test("auto: the device computes what is in its memory, the CPU all else, and the answer names what computed it", r"(asan/)?(cuda_cuda_backend_test|server_test)"),
    of_full("10,000 requests, 64 in flight, each kind of fault at least 500 times and at every chunk boundary, none lost", r"server_fault_storm_10000"),
    of_gpu("hardware: the device's bytes are the reference's", "tests"),
    of_gpu("hardware: a server with --backend=cuda computes on the device and has the bytes of one with --backend=cpu", "server"),
    of_gpu("hardware: memory that another process exports is used where it lies, with the CPU's bytes", "ipc"),
    of_gpu("hardware: a lost device ends the server with 75, and the next one computes", "restart"),
    of_gpu("hardware: compute-sanitizer finds nothing", "memcheck", "initcheck", "synccheck", "racecheck"),
    of_rows("hardware: ApplyRoPE bf16 from 8192 tokens on at 0.93 of a device copy", "cuda.json", lambda r: r["name"] == "rope_inplace"),
    of_rows("hardware: Encode f32 131072x128 at 0.9 of a device memset", "cuda.json", lambda r: r["name"] == "encode"),
    of_rows("hardware: 256 merged one-token requests at 20 times the calls/s of a launch each", "cuda.json", lambda r: r["name"] == "merged"),
    of_rows("hardware: a 256 MiB tensor in the host's memory beside the link and the CPU, which decides for --backend=auto", "cuda.json", lambda r: r["name"] == "host_rope", targeted=False),
    of_rows("hardware: ApplyRoPE beside FlashInfer, sglang, Liger, flash-attn and torch.compile", "cuda_peers.json", lambda r: True),
]

if __name__ == "__main__":
    acceptance.run(TOPIC, CHECKS)
