# SPDX-License-Identifier: Apache-2.0
"""The first call: rotates queries and keys in this process, then by a server, and compares.

    python first_call.py                 # starts a server of this package
    python first_call.py host:50051      # or calls one that runs
"""

import sys

import numpy as np

import phasor
from phasor.testing import Server

TOKENS, QUERY_HEADS, KEY_HEADS, LANES = 16, 32, 8, 128


def show(target):
    random = np.random.default_rng(1)
    q = random.standard_normal((TOKENS, QUERY_HEADS, LANES), np.float32)
    k = random.standard_normal((TOKENS, KEY_HEADS, LANES), np.float32)
    spec = phasor.Spec("llama-3.1-8b")

    here = phasor.apply_rope(q, k, positions=range(TOKENS), spec=spec)
    print("rotated in this process:", here[0].shape, here[1].shape)

    with phasor.Client(target, timeout=10.0) as client:
        print("server:", client.info().version)
        there = client.apply_rope(q, k, positions=range(TOKENS), spec=spec)
    same = all(np.array_equal(a, b) for a, b in zip(here, there))
    print("the server's bytes are the same:", same)
    return same


def main():
    if len(sys.argv) > 1:
        return show(sys.argv[1])
    with Server() as server:
        return show(server.target)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
