# SPDX-License-Identifier: Apache-2.0
"""Exceptions. Each is also the built-in exception that a Python programmer would catch."""

from __future__ import annotations

import re

_FIELD = re.compile(r"([a-z_][\w.\[\]]*): ")


class Error(Exception):
    """An error of Phasor. The message is `<field path>: <what is wrong>; <what to do>`.

    Attributes:
        code: the name of the status, e.g. "INVALID_ARGUMENT".
        field: the path of the field that is wrong, e.g. "item.spec.dim", or None.
        retryable: whether the same call may succeed later. The client has retried it already.
    """

    code = "UNKNOWN"
    retryable = False

    @property
    def field(self) -> str | None:
        match = _FIELD.match(str(self))
        return match[1] if match else None


class InvalidArgument(Error, ValueError):
    """A field, shape, type or position is wrong."""

    code = "INVALID_ARGUMENT"


class OutOfRange(Error, IndexError):
    """A position lies outside a table."""

    code = "OUT_OF_RANGE"


class NotFound(Error, LookupError):
    """No such preset, encoder, table or service."""

    code = "NOT_FOUND"


class NoTable(NotFound, KeyError):
    """No such table, as a mapping says it."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # KeyError's shows the message in quotes


class FailedPrecondition(Error, RuntimeError):
    """The call is right, but not in this state: a pin differs, or the process was forked."""

    code = "FAILED_PRECONDITION"


class Aborted(Error, RuntimeError):
    """The call ended in the middle. Tensors in shared memory may be written in part."""

    code = "ABORTED"


class Unimplemented(Error, NotImplementedError):
    """This target does not have the call, e.g. tables in process."""

    code = "UNIMPLEMENTED"


class ResourceExhausted(Error, MemoryError):
    """Too large for a message, a quota or this machine's memory."""

    code = "RESOURCE_EXHAUSTED"


class AlreadyExists(Error, ValueError):
    """The name is taken."""

    code = "ALREADY_EXISTS"


class Unauthenticated(Error, PermissionError):
    """The server asks for a token or certificate."""

    code = "UNAUTHENTICATED"


class PermissionDenied(Error, PermissionError):
    """The server's policy does not allow the call."""

    code = "PERMISSION_DENIED"


class Unavailable(Error, ConnectionError):
    """No server answers, or it has too much to do."""

    code = "UNAVAILABLE"
    retryable = True


class DeadlineExceeded(Error, TimeoutError):
    """The time of the call is over."""

    code = "DEADLINE_EXCEEDED"


class Cancelled(Error):
    """The call was cancelled."""

    code = "CANCELLED"


class Internal(Error, RuntimeError):
    """An answer that does not match its request. Please report it."""

    code = "INTERNAL"


# By the number of the status.
_CLASSES: dict[int, type[Error]] = {
    1: Cancelled,
    3: InvalidArgument,
    4: DeadlineExceeded,
    5: NotFound,
    6: AlreadyExists,
    7: PermissionDenied,
    8: ResourceExhausted,
    9: FailedPrecondition,
    10: Aborted,
    11: OutOfRange,
    12: Unimplemented,
    13: Internal,
    14: Unavailable,
    16: Unauthenticated,
}


# Errors after which a server may have forgotten memory that was registered with it.
_REFUSALS = (5, 9, 10)
_refused = 0


def refusals() -> int:
    """How many errors there were after which memory should be registered again."""
    return _refused


def make(code: int, message: str) -> Error:
    global _refused
    _refused += code in _REFUSALS
    return _CLASSES.get(code, Error)(message)
