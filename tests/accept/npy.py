# SPDX-License-Identifier: Apache-2.0
"""Reads and writes .npy files of float32 with the standard library alone."""

import array
import ast
import math
import pathlib

MAGIC = b"\x93NUMPY\x01\x00"


def write(path, shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (-(len(MAGIC) + 2 + len(header) + 1) % 64) + "\n"
    data = array.array("f", values)
    assert len(data) == math.prod(shape)
    pathlib.Path(path).write_bytes(MAGIC + len(header).to_bytes(2, "little") + header.encode() + data.tobytes())


def read(path):
    """(shape, values)."""
    raw = pathlib.Path(path).read_bytes()
    assert raw.startswith(MAGIC), f"{path} is not a .npy file of version 1"
    end = 10 + int.from_bytes(raw[8:10], "little")
    header = ast.literal_eval(raw[10:end].decode())
    assert header["descr"] == "<f4" and not header["fortran_order"], header
    values = array.array("f", raw[end:])
    assert len(values) == math.prod(header["shape"])
    return header["shape"], list(values)
