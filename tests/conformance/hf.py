# SPDX-License-Identifier: Apache-2.0
"""Calls the rotary embeddings of transformers' models in the way the models do."""

import functools
import importlib

import torch

F32 = "inv_freq f32 (base ** f32 exponent), angle = f32 product, cos and sin f32, times attention factor"


def module(model):
    return importlib.import_module(f"transformers.models.{model}.modeling_{model}")


def config_of(model, name, **fields):
    return getattr(importlib.import_module(f"transformers.models.{model}.configuration_{model}"), name)(**fields)


def positions_tensor(positions):
    """[1, positions], or [axes, 1, positions]."""
    ids = torch.tensor(positions)
    return ids.T[:, None, :] if ids.ndim == 2 else ids[None]


class Rotary:
    """One of transformers' *RotaryEmbedding classes, with its model's apply function."""

    def __init__(self, model, name, config, layer_type=None, layout="duplicated", apply="apply_rotary_pos_emb"):
        self.module = module(model)
        self.embedding = getattr(self.module, name)(config)
        self.layout = layout
        self.arguments = {"layer_type": layer_type} if layer_type else {}
        self.apply_function = getattr(self.module, apply)

    def tables(self, positions, dtype=torch.float32):
        cos, sin = self.embedding(torch.zeros(1, 1, dtype=dtype), positions_tensor(positions), **self.arguments)
        return cos, sin

    def pairs(self, table):
        table = table.reshape(-1, table.shape[-1]).float().numpy()
        if self.layout == "single":
            return table
        return table[:, ::2] if self.layout == "repeated" else table[:, : table.shape[-1] // 2]

    def compute(self, positions):
        cos, sin = self.tables(positions)
        return self.pairs(cos), self.pairs(sin)

    def frequencies(self):
        layer = self.arguments.get("layer_type")
        return getattr(self.embedding, f"{layer}_inv_freq" if layer else "inv_freq").float().numpy()

    def apply(self, q, positions):
        """q: [tokens, lanes]"""
        cos, sin = self.tables(positions, q.dtype)
        return self.apply_function(q[None, None], q[None, None], cos, sin)[0][0, 0]

    def rotator(self, positions, begin=0, end=None):
        """Lanes [begin, end) go through the model's function, as where a model splits its heads."""

        def rotate(x, dtype):
            y = torch.from_numpy(x).to(dtype)
            y[:, begin:end] = self.apply(y[:, begin:end].clone(), positions)
            return y.float().numpy()

        return {"f32": lambda x: rotate(x, torch.float32), "bf16": lambda x: rotate(x, torch.bfloat16)}


class ComplexRotary(Rotary):
    """The ones that multiply complex numbers (Llama 4, DeepSeek V2)."""

    def tables(self, positions, dtype=torch.float32):
        return self.embedding(torch.zeros(1, 1, dtype=dtype), positions_tensor(positions))

    def compute(self, positions):
        table = self.tables(positions)[0]
        return table.real.numpy(), table.imag.numpy()

    def apply(self, q, positions):
        q = q[None, :, None] if self.layout == "tokens first" else q[None, None]
        return self.apply_function(q, q, self.tables(positions))[0].reshape(q.shape[1] * q.shape[2], -1)


@functools.cache
def packages():
    import transformers

    return f"transformers {transformers.__version__}"
