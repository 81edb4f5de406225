# SPDX-License-Identifier: Apache-2.0
"""Calls Phasor's kernels through bench/peers/shim.cc. Tensors are numpy arrays; bfloat16 is passed as uint16."""

import ctypes

DTYPES = {"FLOAT32": 1, "FLOAT16": 2, "BFLOAT16": 3}


class Phasor:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        for name in ("backend", "encode", "arithmetic", "rope"):
            getattr(self.library, f"phasor_bench_{name}").restype = ctypes.c_void_p
        self.library.phasor_bench_target.restype = ctypes.c_char_p

    def backend(self, threads):
        return ctypes.c_void_p(self.library.phasor_bench_backend(threads))

    def target(self, backend):
        return self.library.phasor_bench_target(backend).decode()

    def encode(self, backend, rows, dim, dtype, out):
        """A function that fills `out` with [sin | cos] of positions 0 ... rows - 1."""
        plan = ctypes.c_void_p(
            self.library.phasor_bench_encode(b"timestep-sin-cos", ctypes.c_int64(rows), ctypes.c_int64(dim), DTYPES[dtype])
        )
        place = ctypes.c_void_p(out.ctypes.data)
        return lambda: self.library.phasor_bench_run_encode(backend, plan, place)

    def arithmetic(self, one, rows, dim, dtype, threads):
        """A function that computes as much as encode's and waits for no memory. `one`: a backend of one thread."""
        sizes = (ctypes.c_int64(rows), ctypes.c_int64(dim))
        run = ctypes.c_void_p(self.library.phasor_bench_arithmetic(b"timestep-sin-cos", *sizes, DTYPES[dtype], one, threads))
        return lambda: self.library.phasor_bench_run_arithmetic(run)

    def rope(self, backend, case, x, y):
        """A function that rotates x (q then k) into y, which may be x."""
        sizes = [ctypes.c_int64(n) for n in (case.tokens, case.q_heads, case.k_heads, case.head_dim)]
        preset = b"rope-interleaved" if case.interleaved else b"rope-half-split"
        positions = ctypes.c_void_p(case.positions.ctypes.data)
        plan = ctypes.c_void_p(self.library.phasor_bench_rope(preset, DTYPES[case.dtype], positions, *sizes))
        places = (ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))
        return lambda: self.library.phasor_bench_run_rope(backend, plan, *places)
