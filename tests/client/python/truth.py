# SPDX-License-Identifier: Apache-2.0
"""What results should be, from numpy in float64 with angles reduced by mpmath in 60 digits."""

import functools

import mpmath
import numpy as np

mpmath.mp.dps = 60

# Half a unit in the last place of the type, and a little: results have magnitudes below 8.
# float64 also has the rounding of frequencies to 2^-64 turns, up to a million positions.
BOUND = {"float64": 4e-12, "float32": 4e-7, "float16": 4e-3, "bfloat16": 3e-2}


@functools.lru_cache(maxsize=100_000)
def _sin_cos(position, j, pairs, theta):
    angle = mpmath.mpf(position) * mpmath.power(theta, mpmath.mpf(-j) / pairs)
    return float(mpmath.sin(angle)), float(mpmath.cos(angle))


def sin_cos(positions, pairs, theta=10000.0):
    """Two float64 arrays [tokens, pairs]."""
    both = np.array([[_sin_cos(p, j, pairs, theta) for j in range(pairs)] for p in positions])
    both = both.reshape(len(positions), pairs, 2)
    return both[..., 0], both[..., 1]


def fraction(value):
    """A Fraction as a number of mpmath."""
    return mpmath.mpf(value.numerator) / value.denominator


def rotated(x, positions, theta=10000.0, interleaved=False, inverse=False):
    """x [tokens, heads, head_dim] as float64, rotated."""
    x = np.asarray(x).astype(np.float64)
    pairs = x.shape[-1] // 2
    sine, cosine = (t[:, None, :] for t in sin_cos(list(positions), pairs, theta))
    if inverse:
        sine = -sine
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :pairs], x[..., pairs:])
    out = np.empty_like(x)
    halves = (out[..., 0::2], out[..., 1::2]) if interleaved else (out[..., :pairs], out[..., pairs:])
    halves[0][...] = first * cosine - second * sine
    halves[1][...] = second * cosine + first * sine
    return out


def timesteps(positions, dim, theta=10000.0):
    """Rows [sines, cosines]."""
    return np.concatenate(sin_cos(list(positions), dim // 2, theta), -1)


def bytes_of(array):
    """The bytes of an array of numpy or a CPU tensor of torch, in row-major order."""
    if hasattr(array, "detach"):
        import torch

        array = array.detach().contiguous().view(torch.uint8).numpy()
    return np.ascontiguousarray(array).tobytes()
