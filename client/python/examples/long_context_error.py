# SPDX-License-Identifier: Apache-2.0
"""How far angles in float32 are from exact, by position: what a model in a long context computes with.

    python long_context_error.py [PRESET] [OUT.png]

Models compute position * inv_freq in float32 before the cosine. A product of 100,000 radians is off by up to 0.004 radians, and
the cosine by as much. Phasor counts turns in integers, so its error does not grow. The plot needs matplotlib.
"""

import sys

import numpy as np

import phasor

POSITIONS = [2**n for n in range(4, 21)]  # to a million
NEAR = 32  # positions beside each, so that one lucky product does not decide


def errors(preset):
    """(position, largest error of float32 angles, largest error of Phasor), against cosines in float64."""
    resolved = phasor.Spec(preset).resolve()
    inv_freq = np.asarray(resolved.inv_freq)
    rows = []
    for position in POSITIONS:
        positions = np.arange(position, position + NEAR)
        # The exact turn in integers, so that float64 loses nothing at large positions.
        turns = np.array([[float(int(p) * pair.turns % 1) for pair in resolved.pairs] for p in positions])
        exact = np.cos(2 * np.pi * turns)
        usual = np.cos(positions[:, None].astype(np.float32) * inv_freq.astype(np.float32))
        phasors = resolved.cos_sin(positions)[0] / resolved.attention_factor
        rows.append((position, np.abs(usual - exact).max(), np.abs(phasors - exact).max()))
    return rows


def plot(rows, preset, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    positions, usual, phasors = zip(*rows)
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.loglog(positions, usual, marker="o", label="angles in float32, as models compute them")
    axes.loglog(positions, phasors, marker="s", label="Phasor")
    axes.set(xlabel="position", ylabel="largest error of a cosine", title=f"{preset}: error by position")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(preset="llama-3", path=None):
    rows = errors(preset)
    print(f"{'position':>10} {'float32 angles':>15} {'Phasor':>10}")
    for position, usual, phasors in rows:
        print(f"{position:>10} {usual:>15.2e} {phasors:>10.2e}")
    if path is not None:
        plot(rows, preset, path)
    return rows


if __name__ == "__main__":
    main(*sys.argv[1:3])
