# SPDX-License-Identifier: Apache-2.0
"""bfloat16 arrays for tritonclient. Some releases of tritonclient convert element by element and
cut off the lower half. These functions convert whole arrays and round to nearest, ties to even, as
the server does.

    tensor = grpcclient.InferInput("Q", list(q.shape), "BF16")
    set_bfloat16(tensor, q)                      # q: any float array
    rotated = get_bfloat16(result, "Q_OUT")      # float32
"""

import numpy as np


def to_bytes(values):
    """Little-endian bfloat16 of an array. NaN stays NaN."""
    values = np.ascontiguousarray(values, np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    rounded = np.where(np.isnan(values), (bits >> 16) | 0x40, rounded)
    return rounded.astype("<u2").tobytes()


def from_bytes(data, shape):
    """The array of float32 that little-endian bfloat16 stands for; exact."""
    bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
    return bits.view(np.float32).reshape(shape)


def set_bfloat16(tensor, values):
    """Gives an InferInput of type BF16 its contents."""
    tensor._raw_content = to_bytes(values)  # what set_data_from_numpy sets
    for key in ("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"):
        tensor._input.parameters.pop(key, None)
    return tensor


def get_bfloat16(result, name):
    """An output of type BF16 of an InferResult."""
    response = result.get_response()
    for output, raw in zip(response.outputs, response.raw_output_contents):
        if output.name == name:
            return from_bytes(raw, tuple(output.shape))
    raise KeyError(name)
