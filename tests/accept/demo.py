# SPDX-License-Identifier: Apache-2.0
"""demo.py BUILD_DIR: starts phasor-server, encodes timesteps and rotates a query and a key over TCP
with the command line, and prints the values next to exact ones. Exit status 0 only if all agree
within the contract of docs/numerics.md."""

import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import exact
import npy
import running

ENCODE_BOUND = 2**-23.9
ROPE_BOUND = 3.5 * 2**-24  # times the length of the pair
STEPS, WIDTH = [10, 12, 16, 100], 128
TOKENS, HEADS, LANES = [0, 1, 131071, 16777216], {"q": 2, "k": 1}, 8


def phasor(build, *arguments):
    subprocess.run([build / "client/cli/phasor", *arguments], check=True, timeout=60)


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def show(title, wanted, got, bound):
    """Prints the first few, returns the largest error in units of the bound."""
    print(f"\n{title}\n  {'served':>14}  {'exact':>24}")
    for value, truth in list(zip(got, wanted))[:4]:
        print(f"  {value:14.9f}  {truth:24.18f}")
    worst = max(float(abs(truth - exact.Decimal(value))) / limit for value, truth, limit in zip(got, wanted, bound))
    print(f"  all {len(got)} values: largest error {worst:.2f} of what is allowed")
    return worst


def encode(build, address, folder):
    output = folder / "rows.npy"
    phasor(build, "encode", "--server", address, "--preset", "timestep-sin-cos", "--dim", str(WIDTH),
           "--positions", ",".join(map(str, STEPS)), "--output", output)
    shape, values = npy.read(output)
    assert shape == (len(STEPS), WIDTH), shape
    rows = [values[i * WIDTH : (i + 1) * WIDTH] for i in range(len(STEPS))]
    return max(
        show(f"encode timestep {x}", exact.timestep_row(x, WIDTH), row, [ENCODE_BOUND] * WIDTH)
        for x, row in zip(STEPS, rows)
    )


def rotate(build, address, folder):
    inputs, outputs = {}, {}
    for name, heads in HEADS.items():
        count = len(TOKENS) * heads * LANES
        inputs[name] = [f32(math.sin(1.7 * i + len(name) + heads)) for i in range(count)]
        npy.write(folder / f"{name}.npy", (len(TOKENS), heads, LANES), inputs[name])
        outputs[name] = folder / f"{name}_rotated.npy"
    phasor(build, "rope", "--server", address, "--preset", "rope-half-split", "--head-dim", str(LANES),
           "--positions", ",".join(map(str, TOKENS)),
           *(a for name in HEADS for a in ("--input", folder / f"{name}.npy", "--output", outputs[name])))
    worst = 0
    for name, heads in HEADS.items():
        shape, values = npy.read(outputs[name])
        assert shape == (len(TOKENS), heads, LANES), shape
        for row in range(len(TOKENS) * heads):
            position = TOKENS[row // heads]
            x, y = (v[row * LANES : (row + 1) * LANES] for v in (inputs[name], values))
            bound = [ROPE_BOUND * math.hypot(x[j], x[(j + LANES // 2) % LANES]) for j in range(LANES)]
            worst = max(worst, show(f"rotate {name}, head {row % heads}, position {position}",
                                    exact.rotate_half_split(x, position), y, bound))
    return worst


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder, running.server([build / "server/phasor-server"]) as address:
        print(f"phasor-server answers on {address}")
        worst = max(encode(build, address, pathlib.Path(folder)), rotate(build, address, pathlib.Path(folder)))
    if worst > 1:
        sys.exit(f"\ndemo: values differ from exact ones by {worst:.2f} times what is allowed")
    print("\ndemo: every value agrees with the exact one; the server stopped in order")


if __name__ == "__main__":
    main()
