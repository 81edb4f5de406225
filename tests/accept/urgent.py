# SPDX-License-Identifier: Apache-2.0
"""Checks the repair of severe faults, each by the tests that failed before. Uses the results of the
last `./dev test`."""

import subprocess
import urllib.request

import acceptance
import running
from acceptance import ROOT, Fail, Skip, of_test

TOPIC = "urgent"
ASAN_SERVER = ROOT / "build/asan/server/phasor-server"
UNKNOWN_CALLS = ROOT / "build/release/tests/e2e/unknown_calls"


def unknown_calls():
    """the ASan build serves 100,000 calls of methods that there are not; the metrics page stays under 1 MiB"""
    for program in (ASAN_SERVER, UNKNOWN_CALLS):
        if not program.exists():
            raise Skip(f"no {program.relative_to(ROOT)}: run ./dev test")
    port = running.free_port()
    with running.server([ASAN_SERVER, "--metrics-listen", f"127.0.0.1:{port}"]) as address:
        done = subprocess.run([UNKNOWN_CALLS, address, "100000"], capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            raise Fail(done.stderr.strip() or f"status {done.returncode}")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            size = len(page.read())
    if size >= 1 << 20:
        raise Fail(f"a page of {size} bytes")
    return f"{done.stdout.strip()}, a page of {size} bytes"


SANITIZED = r"(asan/)?"  # in both builds

CHECKS = [
    of_test("1: a flat OLMo 3 configuration scales full-attention layers alone", r"config_json_test|conformance_configs_test"),
    of_test("2: sd3-2d steps by 1/3, as published", r"presets_test|conformance_test"),
    of_test("3: per_layer_config and kv_channels are read, or refused by name", r"config_layers_test|conformance_configs_test"),
    of_test(
        "4: a rotation in place to the other pairing on device memory; nothing is sent that launches nothing",
        SANITIZED + r"cuda_(device_tensors|cuda_backend|job_rows|chunk|slots)_test",
    ),
    of_test("5: calls of unknown methods are one series", SANITIZED + r"server_(metrics|telemetry)_test"),
    unknown_calls,
    of_test(
        "6: reading takes linear time, with limits on keys and parameters, after admission and deadline",
        SANITIZED + r"(json_test|config_limits_test|server_(oip|api|grpc|engine)_test)|server_abuse_test",
    ),
    of_test("7: untaken answers of every kind of call give their bytes back", SANITIZED + r"server_open_calls_test"),
    of_test("8: limits on calls and metadata hold whatever a peer acknowledges", SANITIZED + r"server_(open_calls|api|grpc|test)(_test)?"),
    of_test("9: health watches keep no names and count as calls of their connection", r"server_(grpc|abuse|open_calls)_test"),
    of_test("10: the admin listener has the limits of the main one, and none can be made without", r"server_abuse_test|repo\.grpc-servers"),
    of_test("11: overload, with client and server in processes of their own", r"server_overload_test"),
    of_test("12, 13: the process ends once it has drained, and hears SIGTERM after a FIFO took its file's place", SANITIZED + r"server_(process|reload)_test"),
    of_test("images serve, however slow the machine", r"deploy\.image"),
]

if __name__ == "__main__":
    acceptance.run(TOPIC, CHECKS)
