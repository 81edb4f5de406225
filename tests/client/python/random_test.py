# SPDX-License-Identifier: Apache-2.0
"""Random calls in process beside truth.py. $PHASOR_RANDOM_CALLS of them, 300 unless set."""

import os

import ml_dtypes
import numpy as np
import truth

import phasor

TYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def positions_of(rng, tokens):
    """Positions as a program writes them, and as numbers."""
    start, step = int(rng.integers(-1000, 100_000)), int(rng.integers(1, 50))
    numbers = list(range(start, start + tokens * step, step))
    kinds = [range(start, start + tokens * step, step), numbers, np.array(numbers), np.array(numbers, np.int32), np.array(numbers, np.float64)]
    kinds.append(phasor.Ragged([1] * tokens, offsets=numbers))
    kinds.append(np.repeat(numbers, 2)[::2])
    return kinds[rng.integers(len(kinds))], numbers


def strided(rng, shape, dtype):
    """An array that may be a part of a larger one."""
    pads = rng.integers(0, 3, 3)
    whole = rng.standard_normal([n + p for n, p in zip(shape, pads, strict=True)]).astype(dtype)
    return whole[tuple(slice(p // 2, p // 2 + n) for n, p in zip(shape, pads, strict=True))]


def test_random_calls_are_true():
    for seed in range(int(os.environ.get("PHASOR_RANDOM_CALLS", "300"))):
        rng = np.random.default_rng(seed)
        name = rng.choice(list(TYPES))
        tokens, heads, pairs = (int(n) for n in rng.integers((1, 1, 1), (6, 4, 9)))
        theta = float(rng.choice([100.0, 10000.0, 500000.0]))
        interleaved, inverse, heads_first, inplace = (bool(b) for b in rng.integers(0, 2, 4))
        positions, numbers = positions_of(rng, tokens)
        x = strided(rng, (tokens, heads, 2 * pairs), TYPES[name])
        wanted = truth.rotated(x, numbers, theta, interleaved, inverse)
        y = phasor.apply_rope(
            x.transpose(1, 0, 2) if heads_first else x,
            positions=positions,
            spec={"preset": "rope-interleaved" if interleaved else "rope-half-split", "rope_theta": theta},
            layout="htd" if heads_first else "thd",
            inverse=inverse,
            inplace=inplace,
        )
        y = y.transpose(1, 0, 2) if heads_first else y
        error = np.abs(y.astype(np.float64) - wanted).max()
        assert error <= truth.BOUND[name], f"seed {seed}: off by {error}"
        assert np.shares_memory(x, y) == inplace, f"seed {seed}"
        dim = 2 * pairs
        rows = phasor.encode({"preset": "timestep-sin-cos", "dim": dim}, positions, dtype=name)
        error = np.abs(rows.astype(np.float64) - truth.timesteps(numbers, dim)).max()
        assert error <= truth.BOUND[name], f"seed {seed}: encoding off by {error}"
