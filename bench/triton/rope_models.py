# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings as a team would write them for Triton: a table of cosines and sines, then two halves."""

import ctypes
import pathlib

import numpy as np

TOKENS, HALF, THETA = 131072, 64, 10000.0


def table():
    angles = np.arange(TOKENS)[:, None] * THETA ** -(np.arange(HALF) / HALF)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def numpy_rope():
    cosines, sines = table()

    def rope(positions, q):
        cos, sin = cosines[positions][:, None], sines[positions][:, None]
        a, b = q[..., :HALF], q[..., HALF:]
        out = np.empty_like(q)
        np.subtract(a * cos, b * sin, out=out[..., :HALF])
        np.add(b * cos, a * sin, out=out[..., HALF:])
        return out

    return rope


def torch_rope(stubs):
    for library in sorted(pathlib.Path(stubs).glob("*")):
        if ".so" in library.name:  # bench/peers/cuda_stubs.py; loaded before torch, and not Triton's own CUDA
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    import torch

    cosines, sines = (torch.from_numpy(values) for values in table())

    def rope(positions, q):
        at, q = torch.tensor(positions), torch.tensor(q)
        cos, sin = cosines[at][:, None], sines[at][:, None]
        a, b = q[..., :HALF], q[..., HALF:]
        out = torch.empty_like(q)
        torch.sub(a * cos, b * sin, out=out[..., :HALF])
        torch.add(b * cos, a * sin, out=out[..., HALF:])
        return out.numpy()

    return rope


def make(library, stubs):
    return numpy_rope() if library == "numpy" else torch_rope(stubs)
