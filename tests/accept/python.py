# SPDX-License-Identifier: Apache-2.0
"""Checks the Python package: its tests from the build tree, its wheel in an empty environment, its
speed beside other libraries. Uses the results of the last `./dev test --full` and
`./dev bench python`."""

import statistics

import acceptance
from acceptance import ROOT, Fail, Skip, of_benchmark, of_full, of_test

TOPIC = "python"
RUN = ROOT / "tests/client/python/run.sh"
PYTHON = ROOT / "build/.venv/bin/python"

CTRL_C = """
import os, signal, socket, threading, time
import phasor
signal.signal(signal.SIGINT, signal.default_int_handler)
with socket.create_server(("127.0.0.1", 0)) as silent:
    client = phasor.Client(f"127.0.0.1:{silent.getsockname()[1]}", timeout=60)
    for _ in range(9):
        sent = []
        def interrupt():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.2, interrupt).start()
        try:
            client.health()
        except KeyboardInterrupt:
            print(time.monotonic() - sent[0])
"""

IMPORT = "import numpy, time; t = time.perf_counter(); import phasor; print(time.perf_counter() - t)"


def python(code):
    """The numbers that a program prints."""
    if not PYTHON.exists():
        raise Skip("no build/.venv: run ./dev test")
    said = acceptance.command(RUN, "build/release", "-c", code, timeout=120)
    return [float(line) for line in said.split()]


def interrupted():
    """Ctrl-C ends a call that waits for a server within 100 ms"""
    median = statistics.median(python(CTRL_C))
    if median > 0.1:
        raise Fail(f"{median * 1000:.0f} ms, median of 9")
    return f"{median * 1000:.0f} ms, median of 9"


def imported():
    """`import phasor` takes less than 100 ms after numpy"""
    median = statistics.median(python(IMPORT)[0] for _ in range(9))
    if median > 0.1:
        raise Fail(f"{median * 1000:.0f} ms, median of 9")
    return f"{median * 1000:.0f} ms, median of 9"


CHECKS = [
    of_test("arrays of every type and kind, in process, sent and staged: the same bytes, and the true ones", r"python\.package"),
    of_test("torch: same bytes, gradcheck, compile; transformers and diffusers, near and at a million", r"python\.torch"),
    of_test("the package is typed (mypy --strict)", r"python\.types"),
    of_full("the wheel of the source distribution needs no library but C's and C++'s, exports its entry point only, and passes the same tests in an empty environment outside the repository, beside grpcio in either order of import", r"python\.wheel"),
    of_full("no use after free under AddressSanitizer, with storms of the garbage collector", r"python\.asan"),
    of_full("arrays of jax, and phasor.jax under jit, vmap and grad", r"python\.jax"),
    of_full("the tests pass with each Python of 3.10 to 3.13 that is installed", r"python\.versions"),
    of_test("Triton's client and plain stubs still work", r"oip\.clients"),
    interrupted,
    imported,
    of_benchmark("python", "4 times numpy and torch for a token, 10 times torch for 1024; tritonclient's calls in less time"),
]

if __name__ == "__main__":
    acceptance.run(TOPIC, CHECKS)
