# SPDX-License-Identifier: Apache-2.0
"""llama.cpp, called through ctypes, with tiny random models: the wheel of xllamacpp exports its C functions.

llama_cpp.py MODEL TYPE OUT.npy: what llama.cpp's own shift gives, in a process that may die of it.
"""

import ctypes
import importlib.util
import os
import resource
import signal
import struct
import subprocess
import sys

import numpy as np

HEADS, VOCABULARY, HIDDEN, THETA = 2, 64, 256, 10000.0
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
YARN = {"factor": 4.0, "original_max_position_embeddings": 1024}

# Tokens of the prompt; those at its start that stay, those behind them that are dropped; those decoded afterwards.
PROMPT, KEPT, DROPPED, FURTHER = 500, 4, 300, 8


class Parameters(ctypes.Structure):
    """A struct of parameters that is passed by value. Larger than llama.cpp's, so that more fields do no harm."""

    _fields_ = [("bytes", ctypes.c_ubyte * 512)]

    def get(self, form, at):
        return struct.unpack_from(form, self.bytes, at)[0]

    def put(self, form, at, value):
        struct.pack_into(form, self.bytes, at, value)


class Batch(ctypes.Structure):
    _fields_ = [("tokens", ctypes.c_int32)] + [(name, ctypes.c_void_p) for name in ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")]


# Fields of llama_context_params: format, offset, default. The defaults are checked, in case a version moves them.
CONTEXT, THREADS, BATCH_THREADS, KEY_TYPE = ("I", 0, 512), ("i", 28, 4), ("i", 32, 4), ("i", 104, TYPES["f16"])


def library():
    found = ctypes.CDLL(importlib.util.find_spec("xllamacpp").submodule_search_locations[0] + "/xllamacpp.abi3.so")
    place, number, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
    for name, result, arguments in (
        ("llama_backend_init", None, []),
        ("llama_log_set", None, [place, place]),
        ("llama_model_default_params", Parameters, []),
        ("llama_context_default_params", Parameters, []),
        ("llama_model_load_from_file", place, [ctypes.c_char_p, Parameters]),
        ("llama_init_from_model", place, [place, Parameters]),
        ("llama_decode", number, [place, Batch]),
        ("llama_get_logits_ith", place, [place, number]),
        ("llama_get_memory", place, [place]),
        ("llama_memory_seq_rm", ctypes.c_bool, [place, number, number, number]),
        ("llama_memory_seq_add", None, [place, number, number, number, number]),
        ("llama_state_seq_get_size", size, [place, number]),
        ("llama_state_seq_get_data", size, [place, place, size, number]),
        ("llama_state_seq_set_data", size, [place, place, size, number]),
    ):
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    found.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    found.llama_log_set(found.quiet, None)
    found.llama_backend_init()
    return found


class Context:
    """A model and its cache of keys."""

    def __init__(self, llama, model, key_type):
        self.llama = llama
        parameters = llama.llama_context_default_params()
        for form, at, default in (CONTEXT, THREADS, BATCH_THREADS, KEY_TYPE):
            if parameters.get(form, at) != default:
                raise RuntimeError(f"llama_context_params has other fields now: {parameters.get(form, at)} at byte {at}")
        for (form, at, _), value in zip((CONTEXT, THREADS, BATCH_THREADS, KEY_TYPE), (1024, 1, 1, TYPES[key_type])):
            parameters.put(form, at, value)
        self.model = llama.llama_model_load_from_file(str(model).encode(), llama.llama_model_default_params())
        self.context = llama.llama_init_from_model(self.model, parameters)
        if not self.model or not self.context:
            raise RuntimeError(f"llama.cpp cannot use {model}")
        self.memory = llama.llama_get_memory(self.context)

    def decode(self, tokens, first):
        """The logits after the last token. Token i is at position first + i."""
        count = len(tokens)
        token, place = np.array(tokens, np.int32), np.arange(first, first + count, dtype=np.int32)
        one, sequence = np.ones(count, np.int32), np.zeros(1, np.int32)
        owners, wanted = np.full(count, sequence.ctypes.data, np.uint64), np.zeros(count, np.int8)
        wanted[-1] = 1
        arrays = (token, place, one, owners, wanted)
        data = [array.ctypes.data for array in arrays]
        status = self.llama.llama_decode(self.context, Batch(count, data[0], None, *data[1:]))
        if status != 0:
            raise RuntimeError(f"llama_decode: {status}")
        logits = ctypes.cast(self.llama.llama_get_logits_ith(self.context, -1), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(logits, (VOCABULARY,)).copy()

    def go_on(self, tokens, first):
        return np.array([self.decode([token], first + i) for i, token in enumerate(tokens)])

    def drop(self):
        self.llama.llama_memory_seq_rm(self.memory, 0, KEPT, KEPT + DROPPED)

    def save(self):
        state = np.zeros(self.llama.llama_state_seq_get_size(self.context, 0), np.uint8)
        return state[: self.llama.llama_state_seq_get_data(self.context, state.ctypes.data, len(state), 0)]

    def load(self, state):
        if self.llama.llama_state_seq_set_data(self.context, state.ctypes.data, len(state), 0) != len(state):
            raise RuntimeError("llama.cpp refuses the state")


def write_model(path, head_dim, rotary_dim, yarn, layers=1):
    """Random weights, without a tokenizer. Queries and keys are large, so that attention is sharp."""
    import gguf

    random, width = np.random.default_rng(1), HEADS * head_dim
    architecture = "llama" if rotary_dim == head_dim else "phi3"
    file = gguf.GGUFWriter(path, architecture)
    file.add_context_length(4096)
    file.add_embedding_length(width)
    file.add_block_count(layers)
    file.add_feed_forward_length(HIDDEN)
    file.add_head_count(HEADS)
    file.add_head_count_kv(HEADS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_freq_base(THETA)
    file.add_rope_dimension_count(rotary_dim)
    file.add_vocab_size(VOCABULARY)
    file.add_tokenizer_model("none")
    if yarn:
        file.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        file.add_rope_scaling_factor(YARN["factor"])
        file.add_rope_scaling_orig_ctx_len(YARN["original_max_position_embeddings"])

    def matrix(name, rows, columns, gain=1.0):
        file.add_tensor(name, (random.standard_normal((rows, columns)) * gain / columns**0.5).astype(np.float32))

    matrix("token_embd.weight", VOCABULARY, width, width**0.5)
    matrix("output.weight", VOCABULARY, width)
    file.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for block in (f"blk.{layer}" for layer in range(layers)):
        if architecture == "phi3":
            matrix(f"{block}.attn_qkv.weight", 3 * width, width, 1.4)
            matrix(f"{block}.ffn_up.weight", 2 * HIDDEN, width)
        else:
            for name, gain in (("q", 1.4), ("k", 1.4), ("v", 1.0)):
                matrix(f"{block}.attn_{name}.weight", width, width, gain)
            matrix(f"{block}.ffn_gate.weight", HIDDEN, width)
            matrix(f"{block}.ffn_up.weight", HIDDEN, width)
        matrix(f"{block}.attn_output.weight", width, width)
        matrix(f"{block}.ffn_down.weight", width, HIDDEN)
        for name in ("attn_norm", "ffn_norm"):
            file.add_tensor(f"{block}.{name}.weight", np.ones(width, np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def tokens():
    drawn = np.random.default_rng(2).integers(0, VOCABULARY, PROMPT + FURTHER).tolist()
    return drawn[:PROMPT], drawn[PROMPT:]


def own_shift(model, key_type, out):
    """Logits after llama.cpp's own shift, or the name of the signal that ended its process."""
    environment = os.environ | {"GGML_NO_BACKTRACE": "1"}
    done = subprocess.run([sys.executable, __file__, model, key_type, out], capture_output=True, text=True, env=environment)
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return np.load(out)


def main():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    context = Context(library(), sys.argv[1], sys.argv[2])
    prompt, further = tokens()
    context.decode(prompt, 0)
    context.drop()
    context.llama.llama_memory_seq_add(context.memory, 0, KEPT + DROPPED, -1, -DROPPED)
    np.save(sys.argv[3], context.go_on(further, PROMPT - DROPPED))


if __name__ == "__main__":
    main()
