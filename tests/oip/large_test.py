# SPDX-License-Identifier: Apache-2.0
"""Sends 1.9 GB in one request of Triton's client, about as much as a message can hold, and then a
small one. $PHASOR_BUILD is the build folder. Exit status 77: too little memory."""

import os
import pathlib
import sys

import numpy as np
import tritonclient.grpc as grpcclient

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "accept"))
import running

SERVER = pathlib.Path(os.environ["PHASOR_BUILD"]) / "server/phasor-server"
POSITIONS = 237_500_000  # of 8 bytes
NEEDED_GIB = 13  # the client holds the request three times and the answer twice, the server each once


def available_gib():
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 2**20


def encode(client, positions):
    """Cosine and sine of every position, as float16."""
    tensor = grpcclient.InferInput("POSITIONS", list(positions.shape), "INT64").set_data_from_numpy(positions)
    parameters = {"dim": 2, "output_dtype": "FP16"}
    return client.infer("transformer", [tensor], parameters=parameters).as_numpy("ENCODING")


def check(got, positions):
    wanted = np.stack([np.sin(positions), np.cos(positions)], -1)
    worst = np.max(np.abs(got.astype(np.float64) - wanted))
    assert worst <= 5e-4, f"off by {worst}"


def main():
    if available_gib() < NEEDED_GIB:
        print(f"SKIP: {available_gib():.1f} GiB of memory available, {NEEDED_GIB} needed: no request of 1.9 GB was sent")
        sys.exit(77)
    with running.server([SERVER]) as address, grpcclient.InferenceServerClient(address) as client:
        got = encode(client, np.arange(POSITIONS))
        assert got.shape == (POSITIONS, 2), got.shape
        for begin in (0, POSITIONS // 2, POSITIONS - 1000):
            check(got[begin : begin + 1000], np.arange(begin, begin + 1000))
        del got
        small = np.array([1, 2, 3])
        check(encode(client, small), small)
    print(f"MEASURED {POSITIONS * 8 / 1e9:.1f} GB in one request, then 24 bytes: both answered as float64 says")


main()
