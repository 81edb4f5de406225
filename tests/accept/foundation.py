# SPDX-License-Identifier: Apache-2.0
"""Checks the promises of the first version. `foundation.py [--fresh] [--reuse]`: --reuse uses the
results of an earlier `./dev test --full` instead of running it; --fresh also tests on a bare Debian
12, which takes an hour."""

import subprocess
import sys

import acceptance
import running
from acceptance import ROOT, Fail, Skip, TestRun, command, of_benchmark, of_full

TOPIC = "foundation"
MAX_TEST_S = 45 * 60
CLI = ROOT / "build/release/client/cli/phasor"


def dev_run_serves():
    """./dev run serves"""
    with running.server(["./dev", "run"]) as address:
        return f"{address}: " + command(CLI, "health", "--server", address, timeout=60).strip()


def bare_debian():
    """A fresh clone on bare Debian 12 runs and tests"""
    if "--fresh" not in sys.argv:
        raise Skip("takes an hour: ./dev accept foundation --fresh")
    done = subprocess.run([ROOT / "tests/accept/fresh.sh"], cwd=ROOT, check=False)
    if done.returncode == 77:
        raise Skip("this machine cannot make a bare Debian 12")
    if done.returncode != 0:
        raise Fail(f"tests/accept/fresh.sh ended with status {done.returncode}")
    return "./dev run and ./dev test passed in a bare Debian 12"


def demo():
    """./dev demo agrees with exact values over TCP"""
    return command("./dev", "demo", timeout=1800).strip().split("\n")[-1]


def test_in_time():
    """./dev test passes within 45 minutes"""
    try:
        run = TestRun("default")
    except Skip:
        run = TestRun("full")  # does all of it and more
    if run.status != 0:
        raise Fail("the last ./dev test failed")
    if run.seconds > MAX_TEST_S:
        raise Fail(f"{run.seconds} s")
    return f"{run.seconds} s, {len(run.cases)} tests"


def test_full():
    """./dev test --full passes"""
    if "--reuse" not in sys.argv:
        subprocess.run(["./dev", "test", "--full"], cwd=ROOT, check=False)
    run = TestRun("full")
    if run.status != 0:
        raise Fail("failed: " + ", ".join(n for n, c in run.cases.items() if c.get("status") == "fail"))
    return f"{run.seconds} s, {len(run.cases)} tests"


CHECKS = [
    dev_run_serves,
    bare_debian,
    demo,
    test_full,
    test_in_time,
    of_full("Accuracy within docs/numerics.md against multiprecision truth", r"[^/]*(accuracy|sincos)[^/]*"),
    of_full("Same bits: reference, targets, threads, batch splits, inproc and TCP", r"(encode|rotary|golden|cpu_.*|backends|e2e_client_bytes)_test|arm_bits"),
    of_benchmark("kernels", "./dev bench kernels meets its targets"),
    of_benchmark("rpc", "./dev bench rpc meets its targets"),
    of_benchmark("plan", "./dev bench plan meets its targets"),
    of_full("ASan and UBSan are clean over everything", r"asan/.*"),
    of_full("TSan is clean over kernels, engine and client core", r"tsan/.*"),
    of_full("100,000 mutated requests without a crash", r"(asan/)?request_mutation_test"),
    of_full("The built image serves on a read-only root", r"deploy\.image"),
    of_full("The Kubernetes manifest validates", r"deploy\.manifest.*"),
    of_full("The repository's own rules hold", r"repo\.(?!proto_breaking).*"),
]

if __name__ == "__main__":
    acceptance.run(TOPIC, CHECKS)
