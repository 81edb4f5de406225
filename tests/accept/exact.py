# SPDX-License-Identifier: Apache-2.0
"""Sine, cosine and frequencies to 50 digits with the standard library alone. The demo compares with
these values. They share no code with the product."""

from decimal import Decimal, getcontext

getcontext().prec = 60


def _arctan_inverse(n):
    """arctan(1/n) by its series."""
    total, term, k = Decimal(0), Decimal(1) / n, 0
    while term:
        total += term / (2 * k + 1) * (-1) ** k
        term /= n * n
        k += 1
        if term < Decimal(10) ** -70:
            return total


PI = 4 * (4 * _arctan_inverse(5) - _arctan_inverse(239))  # Machin


def cos_sin(angle):
    """(cos, sin) of an angle in radians."""
    r = angle % (2 * PI)
    cos = sin = Decimal(0)
    term, k = Decimal(1), 0
    while abs(term) > Decimal(10) ** -65:
        if k % 2 == 0:
            cos += term * (-1) ** (k // 2)
        else:
            sin += term * (-1) ** (k // 2)
        k += 1
        term *= r / k
    return cos, sin


def geometric_frequency(base, j, denominator):
    """base^(-j / denominator)."""
    return (-Decimal(j) / Decimal(denominator) * Decimal(base).ln()).exp()


def timestep_row(x, dim):
    """[sin | cos] of x * 10000^(-i / half)."""
    half = dim // 2
    pairs = [cos_sin(Decimal(x) * geometric_frequency(10000, i, half)) for i in range(half)]
    return [sin for _, sin in pairs] + [cos for cos, _ in pairs]


def rotate_half_split(x, position, base=10000):
    """Rotary embedding of one head, lane j with lane j + len(x) / 2."""
    half = len(x) // 2
    y = [Decimal(0)] * len(x)
    for j in range(half):
        cos, sin = cos_sin(Decimal(position) * geometric_frequency(base, j, half))
        a, b = Decimal(x[j]), Decimal(x[j + half])
        y[j], y[j + half] = a * cos - b * sin, a * sin + b * cos
    return y
