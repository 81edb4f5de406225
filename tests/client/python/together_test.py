# SPDX-License-Identifier: Apache-2.0
"""Phasor in one process with other libraries that have gRPC, protobuf, Abseil or OpenSSL of their own, imported
before it and after it: each makes its calls."""

import importlib.util
import itertools
import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
import numpy as np

def use_phasor():
    import phasor
    x = np.ones((4, 2, 128), np.float32)
    for _ in range(20):
        y = phasor.Client(sys.argv[1]).apply_rope(x, positions=range(4), spec="llama-3")
    assert y.tobytes() == phasor.apply_rope(x, positions=range(4), spec="llama-3").tobytes()
    with np.testing.assert_raises(phasor.NotFound):
        phasor.Client(sys.argv[1]).encode("no-such-preset", 1)

def use_grpc():
    import grpc
    with grpc.insecure_channel(sys.argv[1]) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        for _ in range(20):
            assert check(b"") == b"\\x08\\x01"  # SERVING

def use_google():
    from google.protobuf import struct_pb2
    struct = struct_pb2.Struct()
    struct["x"] = 1.5
    assert struct_pb2.Struct.FromString(struct.SerializeToString()) == struct

def use_torch():
    import torch
    x = torch.ones(4, 2, 128, requires_grad=True)
    (x @ torch.ones(128, 3)).sum().backward()
    assert (x.grad == 3).all()

def use_ssl():
    import ssl, hashlib
    assert hashlib.sha256(b"").hexdigest()[:8] == "e3b0c442" and ssl.create_default_context().get_ca_certs is not None

order = [globals()["use_" + name] for name in sys.argv[2].split(",")]
for use in [*order, *reversed(order)]:
    use()
threads = [threading.Thread(target=use) for use in order * 2]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done")
"""
OTHERS = ["grpc", "google", "torch", "ssl", "torch,grpc,google"]


def is_installed(name):
    try:
        return importlib.util.find_spec({"google": "google.protobuf"}.get(name, name)) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize(("others", "first"), [*itertools.product(OTHERS, [True, False])])
def test_each_makes_its_calls_in_either_order_of_import(phasor_server, others, first):
    missing = [name for name in others.split(",") if not is_installed(name)]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")
    order = f"phasor,{others}" if first else f"{others},phasor"
    command = [sys.executable, "-c", PROGRAM, phasor_server.target, order]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
