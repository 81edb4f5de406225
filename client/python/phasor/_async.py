# SPDX-License-Identifier: Apache-2.0
"""AsyncClient: the calls as coroutines."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

from . import _calls, _errors, _moves, _spec
from ._client import Client, ServerInfo
from ._core import native


class _Loop:
    """The calls in flight of one event loop. An eventfd says that some are done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.completions = native.Completions()
        loop.add_reader(self.completions.fd(), self.drain)

    def drain(self) -> None:
        for future, result in self.completions.drain():
            if future.done():  # its task was cancelled
                continue
            if isinstance(result, _errors.Error):
                future.set_exception(result)
            else:
                future.set_result(result)


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = weakref.WeakKeyDictionary()


class AsyncClient:
    """The calls of Client as coroutines, for asyncio.

        async with phasor.AsyncClient("phasor:50051") as client:
            q = await client.apply_rope(q, positions=range(512), spec="llama-3")

    Takes the options of Client. Rotations and encodings take no thread: the connection tells the
    event loop that they are done. The other calls run in asyncio's threads. Cancelling a task
    cancels its call; the arrays of a cancelled call may be read until the connection has let go of
    them, and are not written. "inproc:" computes before a coroutine first waits.
    """

    def __init__(self, target: str = "inproc:", **options: Any) -> None:
        self._client = Client(target, **options)

    async def _wait(self, start: Callable[[Any, asyncio.Future[Any], Any], None]) -> Any:
        loop = asyncio.get_running_loop()
        state = _loops.get(loop)
        if state is None:
            state = _loops[loop] = _Loop(loop)
        future: asyncio.Future[Any] = loop.create_future()
        cancel = native.CancelToken()
        start(state.completions, future, cancel)
        try:
            return await future
        except asyncio.CancelledError:
            cancel.cancel()
            raise

    async def _rope(self, call: tuple[Any, ...], timeout: float | None) -> Any:
        connection = self._client._native()
        await self._wait(lambda done, token, cancel: connection.rope_async(call, timeout, done, token, cancel))
        return _calls.results(call)

    async def apply_rope(self, *tensors: Any, positions: Any, spec: Any = None, timeout: float | None = None, **kwargs: Any) -> Any:
        """As Client.apply_rope."""
        call = _calls.rope(tensors, positions, spec, **{"pins": self._client._pins, **kwargs})
        return await self._rope(call, timeout)

    async def apply_rope_(self, *tensors: Any, **kwargs: Any) -> None:
        """As Client.apply_rope_."""
        await self.apply_rope(*tensors, inplace=True, **kwargs)

    async def move_keys(self, *keys: Any, from_positions: Any, positions: Any, spec: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """As Client.move_keys."""
        call = _calls.move(keys, from_positions, positions, spec, **{"pins": self._client._pins, **kwargs})
        return await self._rope(call, timeout)

    async def write_paged(self, keys: Any, values: Any, *, timeout: float | None = None, **kwargs: Any) -> None:
        """As Client.write_paged."""
        call = _calls.paged(keys, values, **{"pins": self._client._pins, **kwargs})
        connection = self._client._native()
        await self._wait(lambda done, token, cancel: connection.rope_async(call, timeout, done, token, cancel))

    async def encode(self, spec: Any, positions: Any, *, timeout: float | None = None, **kwargs: Any) -> Any:
        """As Client.encode."""
        call, like = _calls.encode(spec, positions, **{"pins": self._client._pins, **kwargs})
        connection = self._client._native()
        return await self._wait(lambda done, token, cancel: connection.encode_async(call, timeout, like, done, token, cancel))

    async def attention_bias(self, kind: str, **kwargs: Any) -> Any:
        """As Client.attention_bias."""
        return await asyncio.to_thread(self._client.attention_bias, kind, **kwargs)

    async def move_paged(self, pools: Any, **kwargs: Any) -> _moves.MoveResult:
        """As Client.move_paged."""
        return await asyncio.to_thread(self._client.move_paged, pools, **kwargs)

    async def resolve(self, spec: Any, **kwargs: Any) -> _spec.Resolved:
        """As Client.resolve."""
        return await asyncio.to_thread(self._client.resolve, spec, **kwargs)

    async def resolve_model(self, config: Any, **kwargs: Any) -> dict[str, _spec.ModelPart]:
        """As phasor.resolve_model."""
        return await asyncio.to_thread(self._client.resolve_model, config, **kwargs)

    async def presets(self, **kwargs: Any) -> list[_spec.Preset]:
        """As Client.presets."""
        return await asyncio.to_thread(self._client.presets, **kwargs)

    async def info(self, **kwargs: Any) -> ServerInfo:
        """As Client.info."""
        return await asyncio.to_thread(self._client.info, **kwargs)

    async def health(self, service: str = "", **kwargs: Any) -> bool:
        """As Client.health."""
        return await asyncio.to_thread(self._client.health, service, **kwargs)

    def close(self) -> None:
        """As Client.close."""
        self._client.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
