# SPDX-License-Identifier: Apache-2.0
"""Streams of calls, each answered when it is done."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _calls, _errors
from ._core import native

if TYPE_CHECKING:
    from ._client import Client


class Answer:
    """The answer to one call of a stream. `id` is what the call returned."""

    def __init__(self, id: int, value: Any, error: BaseException | None) -> None:
        self.id = id
        self._value = value
        self._error = error

    def result(self) -> Any:
        """The result, or raises the error of this call. The stream goes on after an error."""
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self) -> BaseException | None:
        """The error of this call, or None."""
        return self._error


class Stream:
    """A stream of rotations, or one of encodings; the first call decides.

        with client.stream() as stream:
            for q in chunks:
                stream.apply_rope(q, positions=p, spec="llama-3", inplace=True)
            for answer in stream:            # ends when all calls are answered
                answer.result()

    Calls return a number that their Answer has as `id`. Answers come in the order in which calls get
    done. Where the server takes no more calls, the stream first takes answers in. Nothing is retried. One
    thread at a time. Leaving the block early cancels the stream.
    """

    def __init__(self, client: Client, timeout: float | None) -> None:
        self._client = client
        self._timeout = timeout
        self._native: Any = None
        self._kind = ""
        self._next = 0
        self._calls: dict[int, tuple[Any, ...]] = {}
        self._answers: collections.deque[Answer] = collections.deque()
        self._ended = ""  # why it takes no more calls

    def apply_rope(self, *tensors: Any, positions: Any, spec: Any = None, **kwargs: Any) -> int:
        """Sends a rotation; arguments as Client.apply_rope."""
        return self._write("rope", _calls.rope(tensors, positions, spec, **self._client._with_pins(kwargs)), None)

    def move_keys(self, *keys: Any, from_positions: Any, positions: Any, spec: Any, **kwargs: Any) -> int:
        """Sends a move of cached keys; arguments as Client.move_keys."""
        return self._write("rope", _calls.move(keys, from_positions, positions, spec, **self._client._with_pins(kwargs)), None)

    def encode(self, spec: Any, positions: Any, **kwargs: Any) -> int:
        """Sends an encoding; arguments as Client.encode."""
        return self._write("encode", *_calls.encode(spec, positions, **self._client._with_pins(kwargs)))

    def _write(self, kind: str, call: tuple[Any, ...], like: Any) -> int:
        if self._ended:
            raise _errors.FailedPrecondition(self._ended)
        if self._native is None:
            self._kind = kind
            opener = native.open_rope_stream if kind == "rope" else native.open_encode_stream
            self._native = opener(self._client._native(), self._timeout)
        if kind != self._kind:
            raise _errors.InvalidArgument("stream: has rotations or encodings, not both; open another stream")
        # Each side stops when the other does not read.
        while not self._native.wait_to_write() and self._read():
            pass
        number, self._next = self._next, self._next + 1
        self._calls[number] = call
        try:
            self._native.write(number, call, like)
        except BaseException as error:
            del self._calls[number]
            if isinstance(error, _errors.FailedPrecondition) and error.field == "stream":
                self._native.finish()  # raises why the stream has ended
            raise
        return number

    def _read(self) -> bool:
        answer = self._native.read()
        if answer is None:
            return False
        number, value = answer
        call = self._calls.pop(number)
        error = value if isinstance(value, BaseException) else None
        if error is None and self._kind == "rope":
            value = _calls.results(call)
        self._answers.append(Answer(number, None if error else value, error))
        return True

    def __iter__(self) -> Iterator[Answer]:
        """The answers to all calls so far. Ends when each is answered; raises the stream's error."""
        while (answer := self._next_answer()) is not None:
            yield answer

    def _next_answer(self) -> Answer | None:
        if not self._answers and not self._calls:
            return None
        if not self._answers and self._native is None:
            raise _errors.FailedPrecondition(self._ended)
        if not self._answers and not self._read():
            self._native.finish()
            raise _errors.Internal("stream: ended with calls that have no answer")
        return self._answers.popleft()

    def close(self) -> None:
        """Ends the stream. Raises its error; calls that are not answered are cancelled."""
        stream, self._native = self._native, None
        self._ended = "stream: closed; open another stream"
        if stream is None:
            return
        if self._calls:
            stream.cancel()
            return
        stream.writes_done()
        stream.finish()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._cancel()

    def _cancel(self) -> None:
        self._ended = "stream: cancelled; open another stream"
        stream, self._native = self._native, None
        if stream is not None:
            stream.cancel()
