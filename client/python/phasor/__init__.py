# SPDX-License-Identifier: Apache-2.0
"""Phasor: exact position embeddings and rotary embeddings, in process or from a server.

    import phasor

    q, k = phasor.apply_rope(q, k, positions=range(4096), spec="llama-3.1-8b")
    rows = phasor.encode({"preset": "timestep-sin-cos", "dim": 128}, [10, 12, 16, 100])
    client = phasor.Client("phasor:50051")      # the same calls, by a server

docs/python.md of the repository is the manual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._batch import Batch, Handle
from ._calls import Pins
from ._client import Client, ServerInfo, Table, Tables, Tls
from ._core import native as _native_module
from ._errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from ._functions import apply_rope, apply_rope_, attention_bias, connect, encode, move_keys, move_paged, resolve_model, use, write_paged
from ._moves import KeyDifference, KeyGroup, KeyLayer, KeyLayout, KeyPlace, KeyRun, KeyScales, KeySlots, KeySpec, MoveResult
from ._positions import Grid, Ragged
from ._spec import ModelLayer, ModelPart, Pair, Preset, Resolved, Spec, presets
from ._stream import Answer, Stream

if TYPE_CHECKING:
    from ._async import AsyncClient

__version__ = "0.1.0"
numerics_version: int = _native_module.numerics_version

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Answer",
    "AsyncClient",
    "Batch",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "Error",
    "FailedPrecondition",
    "Grid",
    "Handle",
    "Internal",
    "InvalidArgument",
    "KeyDifference",
    "KeyGroup",
    "KeyLayer",
    "KeyLayout",
    "KeyPlace",
    "KeyRun",
    "KeyScales",
    "KeySlots",
    "KeySpec",
    "ModelLayer",
    "ModelPart",
    "MoveResult",
    "NotFound",
    "OutOfRange",
    "Pair",
    "PermissionDenied",
    "Pins",
    "Preset",
    "Ragged",
    "Resolved",
    "ResourceExhausted",
    "ServerInfo",
    "Spec",
    "Stream",
    "Table",
    "Tables",
    "Tls",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "apply_rope",
    "apply_rope_",
    "attention_bias",
    "connect",
    "encode",
    "move_keys",
    "move_paged",
    "numerics_version",
    "presets",
    "resolve_model",
    "use",
    "write_paged",
]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":  # asyncio takes longer to import than all of this
        from ._async import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
