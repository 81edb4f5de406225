# SPDX-License-Identifier: Apache-2.0
"""Loads the native module and gives it the functions of this package that it calls."""

from __future__ import annotations

import threading

import numpy as np

from . import _arrays, _errors, _native

native = _native

_native.setup(
    {
        "kinds": _arrays.KINDS,
        "find_kind": _arrays.find_kind,
        "dtypes": _arrays.DTYPES,
        "find_dtype": _arrays.find_dtype,
        "contiguous": _arrays.contiguous,
        "positions": _arrays.position_array,
        "finish": _arrays.finish,
        "cuda_array": _arrays.cuda_array,
        "torch_stream": _arrays.torch_stream,
        "written": _arrays.written,
        "error": _errors.make,
        "sample": np.empty((2, 3), np.float32),
    },
    threading.main_thread().ident or 0,
)

# Numbers of enumerators by their names in lower case.
FORMS: dict[str, int] = {name.lower(): code for code, name in enumerate(_native.form_names())}
BIAS_FAMILIES: dict[str, int] = {name.lower(): code for code, name in enumerate(_native.bias_family_names())}
KEY_CODES: dict[str, int] = {name.lower(): code for code, name in enumerate(_native.key_code_names())}
assert [name.lower() for name in _native.dtype_names()] == list(_arrays.NAMES)
