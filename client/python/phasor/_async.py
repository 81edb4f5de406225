# SPDX-License-Identifier: Apache-2.0
"""AsyncClient: the calls as coroutines, in batches and in streams."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from . import _calls, _errors, _moves, _spec
from ._batch import Batch
from ._client import Client, ServerInfo, Tables
from ._core import native
from ._stream import Answer, Stream

_T = TypeVar("_T")

_JOINED = 64  # rotations in one message


class _Loop:
    """The calls in flight of one event loop. An eventfd says that some are done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)
        self.completions = native.Completions()
        self.turns: dict[AsyncClient, list[_Rotation]] = {}  # what began in this turn of the loop
        loop.add_reader(self.completions.fd(), self.drain)

    def drain(self) -> None:
        for token, result in self.completions.drain():
            if isinstance(token, _Message):
                token.settle(result)
            elif token.done():  # its task was cancelled
                continue
            elif isinstance(result, BaseException):
                token.set_exception(result)
            else:
                token.set_result(result)


class _Rotation:
    """A small rotation, which travels with others."""

    __slots__ = ("call", "future", "message", "rope", "timeout")

    def __init__(self, call: tuple[Any, ...], rope: Any, timeout: float | None, future: asyncio.Future[None]) -> None:
        self.call, self.rope, self.timeout, self.future = call, rope, timeout, future
        self.message: _Message | None = None


class _Message:
    """Rotations that travel together. Cancelled when nobody waits for any of them."""

    def __init__(self, client: AsyncClient, state: _Loop, rotations: list[_Rotation]) -> None:
        self.client, self.state, self.rotations = client, state, rotations
        self.connection = client._client._native()
        self.waiting = len(rotations)
        ropes = []
        for each in rotations:  # what was sent once is read again
            ropes.append(each.rope or self.connection.prepare_rope(each.call, sys.maxsize))
            each.rope, each.message = None, self
        self.token = self.connection.start_ropes(ropes, rotations[0].timeout, state.completions, self)

    def drop(self) -> None:
        """Nobody waits for one of the rotations any more."""
        self.waiting -= 1
        if self.waiting == 0:
            self.token.cancel()

    def settle(self, result: list[_errors.Error | None] | BaseException) -> None:
        errors: list[Any] = [result] * len(self.rotations) if isinstance(result, BaseException) else result
        waiting = [(each, error) for each, error in zip(self.rotations, errors, strict=True) if not each.future.done()]
        if len(errors) > 1 and all(isinstance(error, (_errors.PermissionDenied, _errors.Unimplemented)) for error in errors):
            self.client._join_bytes = 0  # this server may allow single calls only
            for each, _ in waiting:
                self.client._start(self.state, [each])
            return
        for each, error in waiting:
            if error is None:
                each.future.set_result(None)
            else:
                each.future.set_exception(error)


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = weakref.WeakKeyDictionary()


class AsyncBatch(Batch):
    """A Batch for `async with`. One of asyncio's threads makes the calls of a block together; it goes
    on if the task is cancelled meanwhile."""

    async def __aenter__(self) -> AsyncBatch:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await asyncio.to_thread(self.run)


class AsyncStream:
    """A Stream for asyncio.

        async with client.stream() as stream:
            for q in chunks:
                await stream.apply_rope(q, positions=p, spec="llama-3", inplace=True)
            async for answer in stream:
                answer.result()

    Waiting takes one of asyncio's threads for each stream. One task at a time. Cancelling the task
    cancels the stream.
    """

    def __init__(self, client: Client, timeout: float | None) -> None:
        self._stream = Stream(client, timeout)

    async def _wait(self, function: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        try:
            return await asyncio.to_thread(function, *args, **kwargs)
        except asyncio.CancelledError:
            self._stream._cancel()  # its thread then stops waiting
            raise

    async def apply_rope(self, *tensors: Any, **kwargs: Any) -> int:
        """As Stream.apply_rope."""
        return await self._wait(self._stream.apply_rope, *tensors, **kwargs)

    async def move_keys(self, *keys: Any, **kwargs: Any) -> int:
        """As Stream.move_keys."""
        return await self._wait(self._stream.move_keys, *keys, **kwargs)

    async def encode(self, spec: Any, positions: Any, **kwargs: Any) -> int:
        """As Stream.encode."""
        return await self._wait(self._stream.encode, spec, positions, **kwargs)

    async def __aiter__(self) -> AsyncIterator[Answer]:
        """As iterating over Stream."""
        while (answer := await self._wait(self._stream._next_answer)) is not None:
            yield answer

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self._wait(self._stream.close)
        else:
            self._stream._cancel()


class AsyncClient:
    """The calls of Client as coroutines, for asyncio.

        async with phasor.AsyncClient("phasor:50051") as client:
            q = await client.apply_rope(q, positions=range(512), spec="llama-3")

    Takes the options of Client. Rotations and encodings take no thread: the connection tells the
    event loop that they are done. The other calls run in asyncio's threads. Cancelling a task
    cancels its call; the arrays of a cancelled call may be read until the connection has let go of
    them, and are not written. "inproc:" computes before a coroutine first waits.

    Rotations to new arrays that begin in the same turn of the event loop and have at most `join_bytes`
    each travel in one message, up to 64. Each has its own result, error and timeout; to the server they
    are one call of BatchApplyRoPE. 0: each travels by itself.
    """

    def __init__(self, target: str = "inproc:", *, join_bytes: int = 16 << 10, **options: Any) -> None:
        if join_bytes < 0:
            raise _errors.InvalidArgument(f"join_bytes: {join_bytes}; must be at least 0")
        self._client = Client(target, **options)
        self._join_bytes = 0 if target == "inproc:" else join_bytes
        self._last: _Loop | None = None  # of the last call

    def _loop(self, loop: asyncio.AbstractEventLoop) -> _Loop:
        state = _loops.get(loop)
        if state is None:
            state = _loops[loop] = _Loop(loop)
        self._last = state
        return state

    def _state(self, loop: asyncio.AbstractEventLoop) -> _Loop:
        state = self._last
        return state if state is not None and state.loop() is loop else self._loop(loop)

    async def _wait(self, start: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a call that `start` begins, which gets `arguments`, where to say that it is done,
        and for whom, and returns what cancels it."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        cancel = start(*arguments, self._state(loop).completions, future)
        try:
            return await future
        except asyncio.CancelledError:
            cancel.cancel()
            raise

    async def _rope(self, call: tuple[Any, ...], new: bool, timeout: float | None) -> Any:
        """Makes a rotation and gives its result. `new`: nobody else has its outputs."""
        connection = self._client._native()
        rope = connection.prepare_rope(call, self._join_bytes) if new and self._join_bytes else None
        if rope is None:
            await self._wait(connection.rope_async, call, timeout)
        else:
            await self._join(call, rope, timeout)
        return _calls.results(call)

    async def _join(self, call: tuple[Any, ...], rope: Any, timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        state = self._state(loop)
        rotation = _Rotation(call, rope, timeout, loop.create_future())
        turn = state.turns.get(self)
        if turn is None:
            turn = state.turns[self] = []
            loop.call_soon(self._send, state)
        turn.append(rotation)
        try:
            await rotation.future
        except asyncio.CancelledError:
            if rotation.message is not None:
                rotation.message.drop()
            raise

    def _send(self, state: _Loop) -> None:
        """Sends what began in the turn of the loop that is over."""
        groups: dict[float | None, list[_Rotation]] = {}
        for each in state.turns.pop(self):
            if not each.future.done():  # its task was cancelled
                groups.setdefault(each.timeout, []).append(each)
        for group in groups.values():
            for start in range(0, len(group), _JOINED):
                self._start(state, group[start : start + _JOINED])

    def _start(self, state: _Loop, rotations: list[_Rotation]) -> None:
        try:
            _Message(self, state, rotations)
        except Exception as error:  # the client was closed meanwhile
            for each in rotations:
                each.future.set_exception(error)

    async def apply_rope(
        self,
        *tensors: Any,
        positions: Any,
        spec: Any = None,
        preset: str | None = None,
        config: Any = None,
        layout: str = "thd",
        inverse: bool = False,
        inplace: bool = False,
        out: Any = None,
        out_dtype: Any = None,
        inv_scale: Any = None,
        pins: _calls.Pins | None = None,
        timeout: float | None = None,
    ) -> Any:
        """As Client.apply_rope."""
        pins = pins or self._client._pins
        call = _calls.rope(tensors, positions, spec, preset, config, layout, inverse, inplace, out, out_dtype, inv_scale, pins)
        return await self._rope(call, not inplace and out is None, timeout)

    async def apply_rope_(self, *tensors: Any, **kwargs: Any) -> None:
        """As Client.apply_rope_."""
        await self.apply_rope(*tensors, inplace=True, **kwargs)

    async def move_keys(self, *keys: Any, from_positions: Any, positions: Any, spec: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """As Client.move_keys."""
        call = _calls.move(keys, from_positions, positions, spec, **self._client._with_pins(kwargs))
        return await self._rope(call, not kwargs.get("inplace") and kwargs.get("out") is None, timeout)

    async def write_paged(self, keys: Any, values: Any, *, timeout: float | None = None, **kwargs: Any) -> None:
        """As Client.write_paged."""
        call = _calls.paged(keys, values, **self._client._with_pins(kwargs))
        await self._wait(self._client._native().rope_async, call, timeout)

    async def encode(self, spec: Any, positions: Any, *, timeout: float | None = None, **kwargs: Any) -> Any:
        """As Client.encode."""
        call, like = _calls.encode(spec, positions, **self._client._with_pins(kwargs))
        return await self._wait(self._client._native().encode_async, call, timeout, like)

    async def apply_rope_large(self, *tensors: Any, **kwargs: Any) -> Any:
        """As Client.apply_rope_large."""
        return await asyncio.to_thread(self._client.apply_rope_large, *tensors, **kwargs)

    def batch(self, *, timeout: float | None = None) -> AsyncBatch:
        """As Client.batch, for `async with`."""
        return AsyncBatch(self._client, timeout)

    def stream(self, *, timeout: float | None = None) -> AsyncStream:
        """As Client.stream, for `async with` and `async for`."""
        return AsyncStream(self._client, timeout)

    async def empty(self, *args: Any, **kwargs: Any) -> Any:
        """As Client.empty."""
        return await asyncio.to_thread(self._client.empty, *args, **kwargs)

    async def attention_bias(self, kind: str, **kwargs: Any) -> Any:
        """As Client.attention_bias."""
        return await asyncio.to_thread(self._client.attention_bias, kind, **kwargs)

    async def move_paged(self, pools: Any, **kwargs: Any) -> _moves.MoveResult:
        """As Client.move_paged."""
        return await asyncio.to_thread(self._client.move_paged, pools, **kwargs)

    @property
    def tables(self) -> Tables:
        """As Client.tables: a mapping, whose calls wait. Use asyncio.to_thread where that matters."""
        return self._client.tables

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
