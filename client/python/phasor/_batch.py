# SPDX-License-Identifier: Apache-2.0
"""Calls that are made together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _calls, _errors

if TYPE_CHECKING:
    from ._client import Client


class Handle:
    """The result of one call of a batch."""

    def __init__(self) -> None:
        self._value: Any = None
        self._error: BaseException | None = _errors.FailedPrecondition("batch: not run yet; leave its `with` block first")

    def _set(self, value: Any, error: BaseException | None) -> None:
        self._value, self._error = value, error

    def result(self) -> Any:
        """The result, or raises the error of this call; those of other calls do not matter."""
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self) -> BaseException | None:
        """The error of this call, or None."""
        return self._error


class Batch:
    """Calls that are made when the `with` block ends: one message for all rotations and one for all
    encodings. Each call has its own result or error (Handle). If a message fails as a whole, the
    block raises."""

    def __init__(self, client: Client, timeout: float | None) -> None:
        self._client = client
        self._timeout = timeout
        self._ropes: list[tuple[Handle, tuple[Any, ...]]] = []
        self._encodes: list[tuple[Handle, tuple[Any, ...], Any]] = []

    def apply_rope(self, *tensors: Any, positions: Any, spec: Any = None, **kwargs: Any) -> Handle:
        """As Client.apply_rope."""
        return self._add_rope(_calls.rope(tensors, positions, spec, **self._client._with_pins(kwargs)))

    def move_keys(self, *keys: Any, from_positions: Any, positions: Any, spec: Any, **kwargs: Any) -> Handle:
        """As Client.move_keys."""
        return self._add_rope(_calls.move(keys, from_positions, positions, spec, **self._client._with_pins(kwargs)))

    def encode(self, spec: Any, positions: Any, **kwargs: Any) -> Handle:
        """As Client.encode."""
        handle = Handle()
        self._encodes.append((handle, *_calls.encode(spec, positions, **self._client._with_pins(kwargs))))
        return handle

    def _add_rope(self, call: tuple[Any, ...]) -> Handle:
        handle = Handle()
        self._ropes.append((handle, call))
        return handle

    def run(self) -> None:
        """Makes the calls that were added since the last time."""
        ropes, self._ropes = self._ropes, []
        encodes, self._encodes = self._encodes, []
        connection = self._client._native()
        if ropes:
            errors = connection.rope_batch([call for _, call in ropes], self._timeout)
            for (handle, call), error in zip(ropes, errors, strict=True):
                handle._set(None if error else _calls.results(call), error)
        if encodes:
            values = connection.encode_batch([call for _, call, _ in encodes], [like for _, _, like in encodes], self._timeout)
            for (handle, _, _), value in zip(encodes, values, strict=True):
                failed = isinstance(value, BaseException)
                handle._set(None if failed else value, value if failed else None)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.run()
