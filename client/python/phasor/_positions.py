# SPDX-License-Identifier: Apache-2.0
"""Positions that are more than a list of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._core import native

Axis = range | int | tuple[float, float, int]


class Grid:
    """Every combination of positions on several axes, row major, the last axis fastest.

    Each axis is a range, a count (0, 1, ..., count - 1), or (start, step, count) of real numbers.

        phasor.Grid(16, range(0, 32, 2))   # 16 * 16 tokens with two axes
    """

    __slots__ = ("_axes", "_positions")

    def __init__(self, *axes: Axis) -> None:
        self._axes = axes
        self._positions = native.grid(axes)

    def __repr__(self) -> str:
        return f"Grid({', '.join(map(repr, self._axes))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grid) and self._axes == other._axes

    def __hash__(self) -> int:
        return hash(self._axes)

    def __reduce__(self) -> Any:
        return (Grid, self._axes)


class Ragged:
    """Packed sequences: sequence s has positions offsets[s], offsets[s] + 1, ..., lengths[s] of them.

        phasor.Ragged([3, 2], offsets=[0, 100])   # 0 1 2 100 101
    """

    __slots__ = ("_lengths", "_offsets", "_positions")

    def __init__(self, lengths: Sequence[int], offsets: Sequence[int] = ()) -> None:
        self._lengths = tuple(lengths)
        self._offsets = tuple(offsets)
        self._positions = native.ragged(self._lengths, self._offsets)

    def __repr__(self) -> str:
        return f"Ragged({list(self._lengths)}, offsets={list(self._offsets)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ragged) and (self._lengths, self._offsets) == (other._lengths, other._offsets)

    def __hash__(self) -> int:
        return hash((self._lengths, self._offsets))

    def __reduce__(self) -> Any:
        return (Ragged, (self._lengths, self._offsets))
