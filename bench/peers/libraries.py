# SPDX-License-Identifier: Apache-2.0
"""The peers, each used at its best, as its users run it.

Tables of cosines and sines, or of frequencies, are made beforehand in double precision. Outputs go to
memory that is already mapped if the library allows that. Each function returns the function to time,
which returns [q, k] (ApplyRoPE) or rows (Encode), or None if the library has no such operation.
"""

import ctypes
import functools

import numpy as np


def frequencies(head_dim):
    return 10000.0 ** (-np.arange(head_dim // 2) / (head_dim // 2))


def angles(case):
    return case.positions[:, None] * frequencies(case.head_dim)


# --- memory, which no peer and not Phasor can be faster than ----------------------------------------


def bytes_of(array, threads):
    """The bytes of `array` as a tensor of PyTorch, which copies on several threads."""
    import torch

    torch.set_num_threads(threads)
    return torch.from_numpy(array.view(np.uint8))


def copy(x, y, threads):
    """{name: function} that reads and writes what a rotation of x into y does. Empty: PyTorch does not load."""
    try:
        source, target = bytes_of(x, threads), bytes_of(y, threads)
    except ImportError:
        return {}
    return {"memory": lambda: target.copy_(source)}


def fill(out, threads):
    """{name: function} that writes as much as an encoding, as copy. No zeros: Zen 5 writes those
    to memory at twice the speed of other bytes."""
    try:
        target = bytes_of(out, threads)
        return {"memory": lambda: target.fill_(0x3F)}
    except ImportError:
        return {}


# --- numpy ----------------------------------------------------------------------------------------


def numpy_encode(rows, dim, dtype, threads):
    if dtype != "FLOAT32" or threads != 1:
        return None
    t = np.arange(rows, dtype=np.float32)
    f = frequencies(dim).astype(np.float32)
    out = np.empty((rows, dim), np.float32)

    def run():
        phase = np.outer(t, f)
        np.sin(phase, out=out[:, : dim // 2])
        np.cos(phase, out=out[:, dim // 2 :])
        return out

    return run


def numpy_rope(case, x, y, threads):
    if case.dtype != "FLOAT32" or threads != 1:
        return None
    half = case.head_dim // 2
    first, second = (np.s_[..., 0::2], np.s_[..., 1::2]) if case.interleaved else (np.s_[..., :half], np.s_[..., half:])
    phase = angles(case)[:, None, :]
    cos, sin = np.cos(phase).astype(np.float32), np.sin(phase).astype(np.float32)

    def rotate(a, b):
        b[first] = a[first] * cos - a[second] * sin
        b[second] = a[second] * cos + a[first] * sin
        return b

    return lambda: [rotate(a, b) for a, b in zip(case.split(x), case.split(y))]


# --- onnxruntime ----------------------------------------------------------------------------------


def onnxruntime_rope(case, x, y, threads):
    if case.dtype == "BFLOAT16":
        return None
    import onnx
    import onnxruntime

    element = onnx.TensorProto.FLOAT if case.dtype == "FLOAT32" else onnx.TensorProto.FLOAT16
    value = onnx.helper.make_tensor_value_info
    inputs = [value("positions", onnx.TensorProto.INT64, None), value("cos", element, None), value("sin", element, None)]
    nodes, outputs = [], []
    for name, heads in (("q", case.q_heads), ("k", case.k_heads)):
        inputs.append(value(name, element, None))
        outputs.append(value(name + "_out", element, None))
        nodes.append(
            onnx.helper.make_node(
                "RotaryEmbedding", [name, "positions", "cos", "sin"], [name + "_out"], domain="com.microsoft",
                interleaved=int(case.interleaved), num_heads=heads, rotary_embedding_dim=0,
            )
        )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "rope", inputs, outputs), opset_imports=opsets)
    model.ir_version = 8
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    # A table of only the positions that occur: row i is token i's.
    phase = angles(case)
    tables = {"cos": np.cos(phase).astype(x.dtype), "sin": np.sin(phase).astype(x.dtype)}
    tables["positions"] = np.arange(case.tokens, dtype=np.int64)[None]
    flat = [a.reshape(1, case.tokens, -1) for a in (*case.split(x), *case.split(y))]
    binding = session.io_binding()
    keep = []
    for name, array in (*tables.items(), ("q", flat[0]), ("k", flat[1])):
        keep.append(onnxruntime.OrtValue.ortvalue_from_numpy(array))
        binding.bind_ortvalue_input(name, keep[-1])
    for name, array in (("q_out", flat[2]), ("k_out", flat[3])):
        keep.append(onnxruntime.OrtValue.ortvalue_from_numpy(array))
        binding.bind_ortvalue_output(name, keep[-1])

    def run():
        session.run_with_iobinding(binding)
        return case.split(y)

    run.keep = keep, tables, flat
    return run


# --- ggml -----------------------------------------------------------------------------------------


def ggml_rope(case, x, y, threads):
    if case.dtype == "BFLOAT16":
        return None
    import ggml

    context = ggml.ggml_init(ggml.ggml_init_params(mem_size=1 << 20, mem_buffer=None, no_alloc=True))
    positions = case.positions.astype(np.int32)
    place = ggml.ggml_new_tensor_1d(context, ggml.GGML_TYPE_I32, case.tokens)
    place.contents.data = positions.ctypes.data
    graph = ggml.ggml_new_graph(context)
    element = ggml.GGML_TYPE_F32 if case.dtype == "FLOAT32" else ggml.GGML_TYPE_F16
    mode = 0 if case.interleaved else 2
    for a, b, heads in zip(case.split(x), case.split(y), (case.q_heads, case.k_heads)):
        source = ggml.ggml_new_tensor_3d(context, element, case.head_dim, heads, case.tokens)
        source.contents.data = a.ctypes.data
        rotated = ggml.ggml_rope_ext(
            context, source, place, None, case.head_dim, mode, 0, 10000.0, 1.0, 0.0, 1.0, 32.0, 1.0
        )
        rotated.contents.data = b.ctypes.data
        ggml.ggml_build_forward_expand(graph, rotated)
    parameters = ggml.ggml_threadpool_params_default(threads)
    pool = ggml.ggml_threadpool_new(ctypes.byref(parameters))
    plan = ggml.ggml_graph_plan(graph, threads, pool)
    work = np.empty(max(1, plan.work_size), np.uint8)
    plan.work_data = work.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))

    def run():
        ggml.ggml_graph_compute(graph, ctypes.byref(plan))
        return case.split(y)

    run.keep = positions, work, parameters
    run.close = lambda: (ggml.ggml_threadpool_free(pool), ggml.ggml_free(context))
    return run


# --- PyTorch --------------------------------------------------------------------------------------


def as_torch(array, dtype):
    import torch

    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == "BFLOAT16" else tensor


def half_split(x, cos, sin):
    """transformers' apply_rotary_pos_emb."""
    import torch

    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def interleaved(x, cos, sin):
    """GPT-J's rotate_every_two."""
    import torch

    turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    return x * cos + turned * sin


def torch_rope(case, x, _, threads, compiled):
    import torch

    torch.set_num_threads(threads)
    inputs = [as_torch(a, case.dtype) for a in case.split(x)]
    phase = torch.from_numpy(angles(case))
    phase = phase.repeat_interleave(2, -1) if case.interleaved else torch.cat((phase, phase), -1)
    cos, sin = phase.cos().to(inputs[0].dtype)[:, None], phase.sin().to(inputs[0].dtype)[:, None]
    rotate = interleaved if case.interleaved else half_split

    def both(q, k, cos, sin):
        return rotate(q, cos, sin), rotate(k, cos, sin)

    if compiled:
        torch._dynamo.reset()
        both = torch.compile(both, dynamic=False, fullgraph=True)

    def run():
        with torch.inference_mode():
            return both(*inputs, cos, sin)

    return run


def torch_encode(rows, dim, dtype, threads, compiled):
    """diffusers' get_timestep_embedding with given frequencies."""
    import torch

    torch.set_num_threads(threads)
    element = torch.float32 if dtype == "FLOAT32" else torch.bfloat16
    t = torch.arange(rows, dtype=torch.float32)
    f = torch.from_numpy(frequencies(dim)).float()

    def encode(t, f):
        phase = t[:, None] * f
        return torch.cat([phase.sin(), phase.cos()], dim=-1).to(element)

    if compiled:
        torch._dynamo.reset()
        encode = torch.compile(encode, dynamic=False, fullgraph=True)

    def run():
        with torch.inference_mode():
            return encode(t, f)

    return run


ROPE = {
    "numpy": numpy_rope,
    "onnxruntime": onnxruntime_rope,
    "ggml": ggml_rope,
    "torch eager": functools.partial(torch_rope, compiled=False),
    "torch.compile": functools.partial(torch_rope, compiled=True),
}
ENCODE = {
    "numpy": numpy_encode,
    "torch eager": functools.partial(torch_encode, compiled=False),
    "torch.compile": functools.partial(torch_encode, compiled=True),
}
