# SPDX-License-Identifier: Apache-2.0
"""perf_analyzer_test.py BUILD: runs Triton's profiler against a running server, with bytes in the
message and with system shared memory. Exit status 77, which CTest shows as skipped: the program is
not available or does not load; the reason is printed."""

import csv
import json
import math
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/accept"))
import running

TRIXIE = [ROOT / "tests/oip/trixie.sh"]
INSIDE = ROOT / "build/trixie"
MODEL = "llama-3.1-8b"
SHAPES = {"POSITIONS": [4], "FROM_POSITIONS": [4], "Q": [4, 32, 128], "K": [4, 8, 128]}


def generated():
    """Every input of the model, with numbers that perf_analyzer makes up: keys move from one position to another."""
    shapes = [f"--shape={name}:{','.join(map(str, shape))}" for name, shape in SHAPES.items()]
    return [*shapes, "--request-parameter=direction:DELTA:string", "--input-data=random"]


def from_file():
    """What a plain rotation needs: optional inputs are left out, but perf_analyzer asks for all outputs of the model."""
    numbers = {"POSITIONS": 7, "Q": 0.5}
    data = {name: {"content": [n] * math.prod(SHAPES[name]), "shape": SHAPES[name]} for name, n in numbers.items()}
    (INSIDE / "tmp/rotation.json").write_text(json.dumps({"data": [data]}), encoding="utf-8")
    return ["--input-data=/tmp/rotation.json"]


class PerfAnalyzerTest(unittest.TestCase):
    def profile(self, what, concurrency, arguments):
        """One measurement; checks what perf_analyzer counted, itself and by the server's statistics."""
        out = INSIDE / "tmp/result.csv"
        out.unlink(missing_ok=True)
        with running.server([SERVER, "--shared-memory"]) as address:
            command = ["perf_analyzer", "-i", "grpc", "-u", address, "-m", MODEL, "-f", "/tmp/result.csv"]
            command += [f"--concurrency-range={concurrency}", "--measurement-interval=1000"]
            command += ["--stability-percentage=999"]  # three windows: on a busy machine they never agree
            done = run([*TRIXIE, *command, "--verbose-csv", *arguments])
        told = f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
        self.assertEqual(done.returncode, 0, told)
        row = next(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
        rate = float(row["Inferences/Second"])
        self.assertEqual(int(row["Concurrency"]), concurrency)
        self.assertGreater(rate, 0)
        # Both come from ModelStatistics, which has to grow while it measures.
        self.assertGreater(int(row["Server Compute Input"]) + int(row["Server Compute Infer"]), 0, told)
        microseconds = [row[f"p{p} latency"] for p in (50, 99)]
        # On a line of its own, which acceptance quotes.
        print(f"\nMEASURED perf_analyzer {what}, {concurrency} at once: {rate:.0f}/s, p50 {microseconds[0]} us, p99 {microseconds[1]} us")

    def test_bytes_in_the_message(self):
        for concurrency in (1, 4, 16):
            with self.subTest(concurrency=concurrency):
                self.profile("in the message", concurrency, generated())

    def test_system_shared_memory(self):
        for concurrency in (1, 4, 16):
            with self.subTest(concurrency=concurrency):
                self.profile("in shared memory", concurrency, [*generated(), "--shared-memory=system"])

    def test_optional_inputs_may_be_left_out(self):
        self.profile("without optional inputs", 4, from_file())

    def test_a_stream(self):
        self.profile("on a stream", 4, [*from_file(), "--streaming"])


def run(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, check=False)


def skip_unless_it_loads():
    done = run([*TRIXIE, "perf_analyzer", "--version"])
    if done.returncode == 0:
        return
    text = (done.stdout + done.stderr).strip().split("\n")
    print(next((line for line in text if line.startswith("SKIP")), f"SKIP: perf_analyzer does not run: {' | '.join(text)}"))
    sys.exit(77)


if __name__ == "__main__":
    SERVER = pathlib.Path(os.path.abspath(sys.argv.pop(1))) / "server/phasor-server"
    skip_unless_it_loads()
    unittest.main()
