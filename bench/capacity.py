# SPDX-License-Identifier: Apache-2.0
"""capacity.py BUILD [--seconds S] [--rounds N]: measures the processor time that a call costs a server.

Fits a part per call and a part per byte over several sizes. Unlike throughput, processor time hardly
depends on what else the machine does. docs/capacity.md calculates with the table that this prints.
"""

import argparse
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

# (what, flags of `phasor bench`, sizes in tokens)
ENCODE = ["--preset", "timestep-sin-cos", "--dim", "128"]
ROPE = ["--preset", "llama-3", "--heads", "32", "--dtype", "bfloat16"]
CASES = [
    ("Encode, TCP", "tcp", ENCODE, [1, 16, 128, 1024, 8192]),
    ("ApplyRoPE, TCP", "tcp", ROPE, [1, 4, 32, 256, 2048]),
    ("ApplyRoPE, Unix socket", "unix", ROPE, [1, 4, 32, 256, 2048]),
    ("ApplyRoPE, shared memory", "shared", ROPE, [1, 4, 32, 256, 2048]),
]


@contextlib.contextmanager
def server(build, directory):
    """Starts a server with one computing thread: (process, its TCP address)."""
    with open(f"{directory}/log", "w+", encoding="utf-8") as log:
        process = subprocess.Popen(
            [build / "server/phasor-server", "--threads=1", "--listen=127.0.0.1:0", f"--listen=unix:{directory}/socket",
             f"--lease-socket={directory}/lease"], stdout=log, stderr=log)  # fmt: skip
        try:
            for _ in range(1000):
                log.seek(0)
                if found := re.search(r"127\.0\.0\.1:[1-9]\d*", log.read()):
                    break
                time.sleep(0.01)
            yield process.pid, found[0]
        finally:
            process.terminate()
            process.wait()


def cpu_seconds(pid):
    """Processor time of a process, to the nanosecond: Linux's clock of that process (CPUCLOCK_SCHED)."""
    return time.clock_gettime(~pid << 3 | 2)


def memory_mib(pid, name):
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)[1]) / 1024


def measure(build, pid, target, flags, tokens, seconds):
    """(bytes of a call in both directions; processor seconds of the server per call; the client's report)"""
    before = cpu_seconds(pid)
    command = [build / "client/cli/phasor", "bench", "--server", target, *flags, "--tokens", str(tokens), "--concurrency", "2",
               "--duration", str(seconds), "--json"]  # fmt: skip
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    used = cpu_seconds(pid) - before
    return report["bytes_per_call"], used / (report["phasor"]["calls"] + 1), report["phasor"]


def fit(points):
    """The a, b of cost = a + b * bytes with the least squared errors, each relative to its cost."""
    rows = [(1 / cost, size / cost) for size, cost in points]
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a1, b1 = sum(r[0] for r in rows), sum(r[1] for r in rows)
    determinant = aa * bb - ab * ab
    return (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant


def run(build, seconds, rounds):
    with tempfile.TemporaryDirectory() as directory, server(build, directory) as (pid, tcp):
        print(f"base: {memory_mib(pid, 'VmRSS'):.0f} MiB resident\n")
        fits = []
        for what, way, flags, sizes in CASES:
            target = tcp if way == "tcp" else f"unix:{directory}/socket"
            flags = flags + (["--shared"] if way == "shared" else [])
            points = []
            for tokens in sizes:
                runs = [measure(build, pid, target, flags, tokens, seconds) for _ in range(rounds)]
                costs = [cost for _, cost, _ in runs]
                cost = statistics.median(costs)
                points.append((runs[0][0], cost))
                rate = statistics.median(report["calls_per_second"] for _, _, report in runs)
                p50 = statistics.median(report["p50_ms"] for _, _, report in runs)
                print(f"{what:26} {runs[0][0]:>10} bytes  {cost * 1e6:>9.1f} us of CPU (from {min(costs) * 1e6:.1f} to"
                      f" {max(costs) * 1e6:.1f})  {rate:>8.0f} calls/s  median {p50:.2f} ms", flush=True)  # fmt: skip
            a, b = fit(points)
            worst = max(abs(a + b * size - cost) / cost for size, cost in points)
            fits.append((what, a, b, worst))
        print("\n| | microseconds a call | cores for 1 GB/s | the fit is off by at most |\n|---|---|---|---|")
        for what, a, b, worst in fits:
            print(f"| {what} | {a * 1e6:.0f} | {b * 1e9:.2f} | {worst:.0%} |")
        print(f"\nafter that: {memory_mib(pid, 'VmRSS'):.0f} MiB resident, at most {memory_mib(pid, 'VmHWM'):.0f} MiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    run(arguments.build, arguments.seconds, arguments.rounds)
