# SPDX-License-Identifier: Apache-2.0
"""Writes caches of one prompt at two offsets, as engines do: random keys, rotated by formulas of this file in double
precision, stored by its own rounding, in .npy, .safetensors and states of llama.cpp."""

import json
import math
import random
import struct

TOKENS, HEADS, HEAD_DIM, LAYERS, DISTANCE = 24, 2, 64, 2, 1000

# The configurations say one thing and the planted engines do another.
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4 * HEAD_DIM,
    "num_attention_heads": 4,
    "num_key_value_heads": HEADS,
    "head_dim": HEAD_DIM,
    "num_hidden_layers": LAYERS,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}


# Rotations, by the formulas of the papers ----------------------------------------------------------


def llama3(frequency, factor=8.0, low=1.0, high=4.0, original=8192):
    """Llama 3.1's ramp: long waves are slowed down, short ones are not, with a linear blend between."""
    wave = 2 * math.pi / frequency
    if wave < original / high:
        return frequency
    if wave > original / low:
        return frequency / factor
    blend = (original / wave - low) / (high - low)
    return (1 - blend) * frequency / factor + blend * frequency


def yarn(frequencies, theta, dim, factor=4.0, original=4096, fast=32, slow=1):
    """YaRN's ramp over the pairs."""
    turns = lambda n: dim * math.log(original / (n * 2 * math.pi)) / (2 * math.log(theta))
    low, high = max(math.floor(turns(fast)), 0), min(math.ceil(turns(slow)), dim - 1)
    out = []
    for j, frequency in enumerate(frequencies):
        ramp = min(max((j - low) / max(high - low, 0.001), 0), 1)
        out.append(frequency / factor * ramp + frequency * (1 - ramp))
    return out


YARN_AMPLITUDE = 0.1 * math.log(4.0) + 1


class Rope:
    """How an engine rotates a head."""

    def __init__(self, theta=500000.0, dim=HEAD_DIM, begin=0, half=True, scaling=None, amplitude=1.0):
        self.begin, self.dim, self.half, self.amplitude = begin, dim, half, amplitude
        self.frequencies = [theta ** (-2 * j / dim) for j in range(dim // 2)]
        if scaling == "llama3":
            self.frequencies = [llama3(f) for f in self.frequencies]
        if scaling == "yarn":
            self.frequencies = yarn(self.frequencies, theta, dim)

    def __call__(self, head, position):
        out = list(head)
        pairs = self.dim // 2
        for j, frequency in enumerate(self.frequencies):
            a = self.begin + (j if self.half else 2 * j)
            b = a + (pairs if self.half else 1)
            c, s = math.cos(position * frequency) * self.amplitude, math.sin(position * frequency) * self.amplitude
            out[a], out[b] = head[a] * c - head[b] * s, head[a] * s + head[b] * c
        return out


def prompt(seed, tokens=TOKENS, heads=HEADS, dim=HEAD_DIM):
    """Keys before rotation, [tokens][heads][dim]."""
    chance = random.Random(seed)
    return [[[chance.gauss(0, 1) for _ in range(dim)] for _ in range(heads)] for _ in range(tokens)]


def rotated(keys, rope, offset):
    return [[rope(head, offset + t) for head in row] for t, row in enumerate(keys)]


# Codes ---------------------------------------------------------------------------------------------


def bfloat16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def q8_0(values):
    """Blocks of 32: the scale as f16, then 32 rounded quotients."""
    out = b""
    for i in range(0, len(values), 32):
        block = values[i : i + 32]
        d = max(abs(v) for v in block) / 127
        out += struct.pack("<e", d) + bytes(round(v / d) & 255 if d else 0 for v in block)
    return out


def q4_0(values):
    out = b""
    for i in range(0, len(values), 32):
        block = values[i : i + 32]
        d = max(block, key=abs) / -8
        codes = [min(15, int(v / d + 8.5)) if d else 8 for v in block]
        out += struct.pack("<e", d) + bytes(codes[k] | codes[k + 16] << 4 for k in range(16))
    return out


CODES = {
    "f32": lambda values: struct.pack(f"<{len(values)}f", *values),
    "f16": lambda values: struct.pack(f"<{len(values)}e", *values),
    "bf16": lambda values: b"".join(map(bfloat16, values)),
    "q8_0": q8_0,
    "q4_0": q4_0,
}
GGML = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2}


def hadamard(values, block):
    """Every block times the Walsh-Hadamard matrix over the root of its size."""
    sign = lambda i, k: -1 if bin(i & k).count("1") % 2 else 1
    out = []
    for begin in range(0, len(values), block):
        part = values[begin : begin + block]
        out += [sum(sign(i, k) * part[k] for k in range(block)) / math.sqrt(block) for i in range(block)]
    return out


# Files ---------------------------------------------------------------------------------------------


def flat(nested):
    return flat([value for inner in nested for value in inner]) if isinstance(nested[0], list) else nested


def nhd(keys):
    return flat(keys)


def hnd(keys):
    return flat([[row[h] for row in keys] for h in range(len(keys[0]))])


def npy(data, descr, shape):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


def safetensors(tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    head, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data


def llama_cache(cells, layers, code, transform=0, transposed=False, values=True, extra=b"", newer=False):
    """What llama_kv_cache::state_write puts out: cells = [(position, [sequences])], layers = [rows of lanes]."""
    out = struct.pack("<II", 1, len(cells))
    for position, sequences in cells:
        out += struct.pack("<iI", position, len(sequences)) + extra + struct.pack(f"<{len(sequences)}i", *sequences)
    out += struct.pack("<II", int(transposed), len(layers))
    if newer:
        out += struct.pack("<II", transform, 0)
    for rows in layers:
        rows = [CODES[code](hadamard(row, transform) if transform else row) for row in rows]
        out += struct.pack("<iQ", GGML[code], len(rows[0])) + b"".join(rows)
    for rows in layers if values else []:
        width = len(rows[0])
        raw = struct.pack(f"<{len(cells) * width}e", *[0.5] * (len(cells) * width))
        out += struct.pack("<iII", 1, 2, width) if transposed else struct.pack("<iQ", 1, 2 * width)
        out += raw
    return out


def llama_sequence_file(cache, tokens=TOKENS, version=3):
    return struct.pack(f"<III{tokens}i", 0x67677371, version, tokens, *range(tokens)) + cache


def llama_sequence_data(cache, sequence=0):
    return struct.pack("<Ii", 0xAF143CD8, sequence) + cache


def llama_session_file(cache, architecture=b"llama", tokens=TOKENS):
    head = struct.pack(f"<III{tokens}i", 0x6767736E, 10, tokens, *range(tokens))
    return head + struct.pack("<I", len(architecture)) + architecture + cache
