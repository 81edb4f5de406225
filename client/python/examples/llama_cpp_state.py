# SPDX-License-Identifier: Apache-2.0
"""Moves the keys in a saved sequence of llama.cpp: what llama_state_seq_get_data() gave, for llama_state_seq_set_data().

It takes the place of llama_memory_seq_add() where that is wrong or ends the process: YaRN, partial rotary and odd head
widths with quantised keys, bfloat16. The cells of a sequence may lie in any order. See docs/move-keys.md.
"""

import dataclasses
import struct

import numpy as np

import phasor

# ggml's numbers of types.
CODES = {0: "float32", 1: "float16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 30: "bfloat16"}
UNITS = {"float32": (1, 4), "float16": (1, 2), "bfloat16": (1, 2), "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34)}


@dataclasses.dataclass
class Keys:
    """The keys of one layer: rows of all heads of a cell, one after another."""

    code: str
    row_bytes: int
    offset: int


@dataclasses.dataclass
class Sequence:
    """Where things lie in the bytes of a sequence."""

    positions: np.ndarray  # of each cell
    position_offsets: list
    layers: list
    hadamard: int


def parse(state):
    """Sequences with one position per cell, as files since October 2026 have them: with the Hadamard blocks."""
    _, _, streams, cells = struct.unpack_from("<4I", state)
    if streams != 1:
        raise ValueError(f"{streams} streams; save one sequence")
    at, positions, places = 16, [], []
    for _ in range(cells):
        position, owners = struct.unpack_from("<iI", state, at)
        positions.append(position)
        places.append(at)
        at += 8 + 4 * owners
    _, count, hadamard, _ = struct.unpack_from("<4I", state, at)
    at += 16
    layers = []
    for _ in range(count):
        kind, row_bytes = struct.unpack_from("<iQ", state, at)
        layers.append(Keys(CODES[kind], row_bytes, at + 12))
        at += 12 + cells * row_bytes
    return Sequence(np.array(positions), places, layers, hadamard)


def move(state, spec, head_dim, to):
    """A copy of `state` whose keys are at the positions `to`, an array with one for each cell in the order of parse()."""
    sequence, moved = parse(state), np.array(state, np.uint8)
    cells = len(sequence.positions)
    layouts, layers = [], []
    for keys in sequence.layers:
        lanes, size = UNITS[keys.code]
        heads = keys.row_bytes // size * lanes // head_dim
        layouts.append(
            phasor.KeyLayout("llamacpp", keys.code, pages=1, page_size=cells, heads=heads, head_dim=head_dim, hadamard=sequence.hadamard)
        )
        place = phasor.KeyPlace(offset_bytes=keys.offset)
        layers.append(phasor.KeyLayer(layout=len(layers), spec=0, place=place, copy_values=False))
    slots = phasor.KeySlots(np.arange(cells), from_positions=sequence.positions, positions=to)
    call = {"layouts": layouts, "specs": [phasor.KeySpec(spec)], "layers": layers}
    phasor.move_paged([moved], groups=[phasor.KeyGroup(slots=slots)], mode="move", **call)
    for place, position in zip(sequence.position_offsets, to):
        struct.pack_into("<i", moved, place, position)
    return moved
