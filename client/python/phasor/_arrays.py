# SPDX-License-Identifier: Apache-2.0
"""Which arrays there are, and how results become arrays of the inputs' kind.

numpy is always there. torch, jax, ml_dtypes and numpy.ma are looked up in sys.modules: whoever passes
one of their arrays has imported them.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from . import _errors

# Kinds, as in client/python/native/arrays.h.
NONE, NUMPY, TORCH, READ_ONLY, OTHER, CUDA = range(6)
KINDS: dict[type, int] = {np.ndarray: NUMPY, type(None): NONE}

# Element types in the order of phasor::Dtype. numpy has no names for those of ml_dtypes.
NAMES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int32", "int64")
_ML_NAMES = {3: "bfloat16", 4: "float8_e4m3fn", 5: "float8_e5m2"}
_BITS = {3: np.uint16, 4: np.uint8, 5: np.uint8}
CODES = {name: code for code, name in enumerate(NAMES)} | {"float8_e4m3fn": 4, "double": 0, "float": 1, "half": 2}
# Names of the types of arrays. What ml_dtypes calls float8_e4m3 has infinity, and so is not Phasor's.
_ARRAY_CODES = {name: code for name, code in CODES.items() if name != "float8_e4m3"}
# dtype objects of numpy, ml_dtypes and torch -> code. Filled in as they are met.
DTYPES: dict[Any, int] = {np.dtype(name): code for code, name in enumerate(NAMES) if code not in _ML_NAMES}


def find_kind(cls: type) -> int:
    """The kind of a type that is not in KINDS yet, which then is."""
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(cls, torch.Tensor):
        kind = TORCH
    elif issubclass(cls, np.ndarray):
        kind = NUMPY
    elif cls.__module__.startswith(("jax", "jaxlib", "tensorflow")):
        kind = READ_ONLY
    elif hasattr(cls, "__cuda_array_interface__"):  # cupy, numba
        kind = CUDA
    else:
        kind = OTHER
    if len(KINDS) < 1000:  # a program that makes types without end
        KINDS[cls] = kind
    return kind


def kind_of(array: Any) -> int:
    cls = type(array)
    kind = KINDS.get(cls)
    return find_kind(cls) if kind is None else kind


def find_dtype(dtype: Any) -> int | None:
    """The code of a dtype object that is not in DTYPES yet, or None."""
    name = getattr(dtype, "name", None)
    if name is None:
        name = str(dtype).removeprefix("torch.")  # torch.dtype has no name
        if not str(dtype).startswith("torch."):
            return None
    elif getattr(dtype, "byteorder", "=") == ">":
        return None
    code = _ARRAY_CODES.get(name)
    if code is not None:
        DTYPES[dtype] = code
    return code


def dtype_code(dtype: Any) -> int:
    """The code of a dtype as programs write it: "bfloat16", numpy.float32, torch.float16."""
    if isinstance(dtype, str):
        code = CODES.get(dtype.removeprefix("torch."))
    elif isinstance(dtype, type):
        code = _ARRAY_CODES.get(np.dtype(dtype).name)
    else:
        code = DTYPES.get(dtype, None)
        if code is None:
            code = find_dtype(dtype)
    if code is None:
        names = ", ".join(NAMES)
        raise _errors.InvalidArgument(f"dtype: {dtype!r} is no type of Phasor; must be one of {names} (float8_e4m3 is float8_e4m3fn of ml_dtypes)")
    return code


def dtype_of(array: Any) -> int:
    return dtype_code(array.dtype if hasattr(array, "dtype") else np.asarray(array).dtype)


def numpy_dtype(code: int) -> np.dtype[Any]:
    """numpy's dtype; that of ml_dtypes where numpy has none."""
    if code not in _ML_NAMES:
        return np.dtype(NAMES[code])
    try:
        import ml_dtypes
    except ImportError:
        raise _errors.InvalidArgument(
            f"dtype: numpy has no {NAMES[code]}; install ml_dtypes (pip install 'phasor-rope[bfloat16]'), or pass like=a torch tensor"
        ) from None
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_NAMES[code]))
    return dtype


def torch_dtype(code: int) -> Any:
    return getattr(sys.modules["torch"], _ML_NAMES.get(code, NAMES[code]))


def empty_like(array: Any, code: int | None) -> Any:
    """A dense array for Phasor to write to, of the shape, place and kind of an array and, unless `code`
    says otherwise, of its type. numpy's for kinds that cannot be written or made here."""
    kind = kind_of(array)
    if kind == NUMPY:
        return np.empty(array.shape, array.dtype if code is None else numpy_dtype(code))
    if kind == TORCH:
        dtype = array.dtype if code is None else torch_dtype(code)
        return sys.modules["torch"].empty(array.shape, dtype=dtype, device=array.device)
    if on_gpu(array):
        if not type(array).__module__.startswith("cupy"):
            raise TypeError(f"tensors: {type(array).__name__} on a GPU; pass out=, arrays there, or inplace=True")
        with array.device:
            return sys.modules["cupy"].empty(array.shape, array.dtype if code is None else numpy_dtype(code))
    if not hasattr(array, "shape"):
        raise TypeError(f"tensors: {type(array).__name__}; must be an array (numpy, torch, DLPack, buffer)")
    return np.empty(array.shape, numpy_dtype(dtype_of(array) if code is None else code))


def finish(array: np.ndarray[Any, Any], code: int, like: Any) -> Any:
    """A result, whose elements may be only bits to numpy, as an array of the kind of `like`."""
    kind = kind_of(like)
    if kind == TORCH:
        torch = sys.modules["torch"]
        if code in _BITS:
            return torch.from_numpy(array.view(np.int16 if code == 3 else np.uint8)).view(torch_dtype(code))
        return torch.from_numpy(array)
    if code in _BITS:
        array = array.view(numpy_dtype(code))
    return to_kind(array, like)


def to_kind(array: Any, like: Any) -> Any:
    """A numpy array as one of jax, if `like` is; otherwise as it is."""
    if kind_of(like) == READ_ONLY and isinstance(array, np.ndarray) and type(like).__module__.startswith("jax"):
        return sys.modules["jax"].numpy.asarray(array)
    return array


def contiguous(array: Any) -> Any:
    """A dense copy in row-major order, in the same memory."""
    if kind_of(array) == TORCH:
        return array.contiguous()
    if on_gpu(array):
        if not hasattr(array, "copy"):
            raise _errors.InvalidArgument(f"tensors: {type(array).__name__} whose last dimension is not contiguous; pass a dense copy")
        return array.copy()
    array = np.asarray(array)
    return array.copy("C")


def check_mask(array: Any, path: str) -> None:
    """Refuses an array of numpy with masked elements: what lies below the mask would be taken for values."""
    if "numpy.ma" not in sys.modules or not isinstance(array, np.ma.MaskedArray):
        return
    mask = np.ascontiguousarray(np.ma.getmask(array))
    if mask.view(np.uint8).any():  # that of a record has fields
        raise _errors.InvalidArgument(f"{path}: an array with masked elements; must have none, as array.filled(0) or array.compressed()")


def check_masks(arrays: Any, path: str) -> None:
    """The same of each array in a list or tuple, and of those in lists inside it."""
    if "numpy.ma" not in sys.modules:
        return
    for number, array in enumerate(arrays):
        if isinstance(array, (list, tuple)):
            check_masks(array, f"{path}[{number}]")
        elif isinstance(array, np.ma.MaskedArray):
            check_mask(array, f"{path}[{number}]")


def check_numbers(values: Any, path: str) -> None:
    """The same of an array, or of lists."""
    if isinstance(values, (list, tuple)):
        check_masks(values, path)
    else:
        check_mask(values, path)


def check_list(numbers: Any, path: str) -> None:
    """Refuses a list of Python's integers and floats with an integer that it would lose in float64."""
    try:
        math.gcd(1, *numbers)  # the fastest way to ask whether all are integers
    except TypeError:
        if set(map(type, numbers)) == {int, float}:
            _check_mixed(numbers, path)


def _check_mixed(numbers: Any, path: str) -> None:
    for number in numbers:
        if isinstance(number, (int, np.integer)) and not _float64_holds(int(number)):
            raise _errors.InvalidArgument(f"{path}: {number} would be rounded to float64, as this list has other types; must be integers of one type")


def _float64_holds(number: int) -> bool:
    odd = number // (number & -number) if number else 0
    return odd.bit_length() <= 53


def _float64(array: np.ndarray[Any, Any], path: str) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(array, np.float64)
    if array.itemsize > 8 and not np.array_equal(narrow, array, equal_nan=True):
        raise _errors.InvalidArgument(f"{path}: {array.dtype} with values that float64 does not hold; must be integers or float64")
    return narrow


def position_array(positions: Any) -> np.ndarray[Any, Any]:
    """Positions as a dense numpy array of int64 or float64; every number exactly."""
    check_numbers(positions, "positions")
    if on_gpu(positions):
        raise TypeError("positions: on a GPU, and nothing copies them to the host unasked; pass positions.cpu()")
    if kind_of(positions) == TORCH:
        torch = sys.modules["torch"]
        if positions.dtype == torch.bool or positions.is_complex():
            raise TypeError(f"positions: {positions.dtype}; must be integers or real numbers")
        wanted = torch.float64 if positions.is_floating_point() else torch.int64
        if positions.dtype == getattr(torch, "uint64", None):
            wanted = torch.uint64
        positions = positions.detach().to(wanted).numpy()
    try:
        array = np.asarray(positions)
    except ValueError as error:
        raise _errors.InvalidArgument("positions: lists of different lengths; pad them, or pass a Ragged") from error
    if array.ndim == 0:
        array = array.reshape(1)
    if array.dtype.kind in "iu":
        if array.dtype.kind == "u" and array.size and int(array.max()) >= 1 << 63:
            raise _errors.InvalidArgument(f"positions: {array.max()} does not fit 64 bits; positions are in [-2^63, 2^63)")
        return np.ascontiguousarray(array, np.int64)
    if array.dtype.kind == "f" or array.dtype.name in _ML_NAMES.values():
        if isinstance(positions, (list, tuple)):
            _check_mixed(np.asarray(positions, object).flat, "positions")
        return _float64(array, "positions")
    raise TypeError(f"positions: {array.dtype}; must be integers or real numbers")


def on_gpu(array: Any) -> bool:
    kind = kind_of(array)
    if kind == TORCH:
        return bool(array.is_cuda)
    return kind == CUDA or (kind in (READ_ONLY, OTHER) and hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == 2)


def cuda_array(array: Any) -> tuple[Any, ...]:
    """(address, type or None, bytes of an element, shape, strides in bytes or None, writable, stream or
    None) of an array with __cuda_array_interface__. The stream is that whose work makes it."""
    values = array.__cuda_array_interface__
    if values.get("mask") is not None:
        raise _errors.InvalidArgument("tensors: an array with a mask; pass one without")
    dtype = array.dtype if hasattr(array, "dtype") else np.dtype(values["typestr"])
    item_bytes = np.dtype(values["typestr"]).itemsize
    if item_bytes == 0:
        raise _errors.InvalidArgument(f"tensors: elements of no bytes ({dtype}); pass an array of numbers")
    address, read_only = values["data"]
    code = DTYPES[dtype] if dtype in DTYPES else find_dtype(dtype)
    return (address, code, item_bytes, values["shape"], values.get("strides"), not read_only, values.get("stream"))


def torch_stream(tensor: Any) -> int:
    """The stream of CUDA on which torch works now, on the device of a tensor."""
    return int(sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream)


def written(tensor: Any) -> None:
    """Tells torch that a tensor was written, so that autograd notices."""
    autograd = sys.modules["torch"].autograd.graph
    if hasattr(autograd, "increment_version"):
        autograd.increment_version(tensor)
