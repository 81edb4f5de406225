# SPDX-License-Identifier: Apache-2.0
"""Client: calls to a server, or to the kernels in this process."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _arrays, _calls, _devices, _errors, _moves, _spec
from ._core import native

if TYPE_CHECKING:
    from ._batch import Batch
    from ._stream import Stream


@dataclasses.dataclass(frozen=True)
class Tls:
    """TLS to a server. Files are PEM. Without `ca_file` the system's certificates count.
    `cert_file` and `key_file` are for servers that ask for a client's certificate."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None


@dataclasses.dataclass(frozen=True)
class ServerInfo:
    """What a server says about itself. A limit of 0 is none."""

    version: str
    numerics_version: int
    backends: tuple[str, ...]
    cpu_target: str
    cpu_threads: int
    listeners: tuple[str, ...]
    max_message_bytes: int
    max_header_bytes: int
    max_inflight_bytes: int
    inline_bytes: int
    max_batch_items: int
    lease_socket: str
    device_uuid: str
    encoders: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Table:
    """A learned table of a server: its shape, type and SHA-256."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    sha256: str

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Table:
        return cls(values["name"], values["shape"], _arrays.NAMES[values["dtype"]], values["sha256"])


class Client:
    """A client of one target.

    Args:
        target: "inproc:" (computes on the calling thread; no server), "host:port",
            "dns:///host:port", "unix:/path", "ipv4:a.b.c.d:port".
        timeout: seconds that a call may take, retries included; calls may name another.
        max_attempts: attempts of a call in all; only Unavailable is retried. While no server
            is connected, a retry waits up to 2 s for one. 1: a call fails at once.
        channels: connections to each address.
        threads: "inproc:" only: threads that compute, the caller's included.
        staging_bytes: shared memory through which large tensors go to a server on this host; 0: none.
        tls: True, or a Tls. token, token_file: sent with every call.
        pins: what every call requires; a call may name others.

    Connects at the first call. Any thread may call at any time. Picklable: the copy connects by
    itself. After fork(): a client that was used before raises FailedPrecondition in the child,
    except for "inproc:" with one thread, which goes on. Ctrl-C ends a call that waits.
    """

    def __init__(
        self,
        target: str = "inproc:",
        *,
        timeout: float = 10.0,
        max_attempts: int = 3,
        channels: int = 1,
        threads: int = 1,
        backend: str = "cpu",
        staging_bytes: int = 256 << 20,
        tls: bool | Tls = False,
        token: str | None = None,
        token_file: str | None = None,
        token_over_plaintext: bool = False,
        pins: _calls.Pins | None = None,
    ) -> None:
        if not isinstance(target, str):
            raise TypeError(f"target: {type(target).__name__}; must be a str, such as 'unix:/run/phasor.sock'")
        self._target = target
        self._options = {
            "timeout": timeout,
            "max_attempts": max_attempts,
            "channels": channels,
            "threads": threads,
            "backend": backend,
            "staging_bytes": staging_bytes,
            "tls": Tls() if tls is True else tls or None,
            "token": token,
            "token_file": token_file,
            "token_over_plaintext": token_over_plaintext,
        }
        self._pins = pins
        self._lock = threading.Lock()
        self._connected: Any = None
        self._devices: _devices.Devices | None = None
        self._closed = False

    def _native(self) -> Any:
        connected = self._connected
        return connected if connected is not None else self._connect()

    def _connect(self) -> Any:
        with self._lock:
            if self._closed:
                raise _errors.FailedPrecondition("client: closed; make a new one")
            if self._connected is None:
                self._devices = _devices.Devices()
                self._connected = native.Client(self._target, self._options, self._devices)
            return self._connected

    def _with_pins(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call with the pins that hold for it: its own, or else the client's."""
        return {**arguments, "pins": arguments.get("pins") or self._pins}

    # --- rotations --------------------------------------------------------------------------------

    def apply_rope(
        self,
        *tensors: Any,
        positions: Any,
        spec: _spec.SpecLike | None = None,
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
        """Rotates queries, keys, ... by their positions. See phasor.apply_rope."""
        return self._rope(
            tensors, positions, spec, preset, config, layout, inverse, inplace, out, out_dtype, inv_scale, pins, timeout
        )

    def _rope(
        self,
        tensors: tuple[Any, ...],
        positions: Any,
        spec: _spec.SpecLike | None,
        preset: str | None,
        config: Any,
        layout: str,
        inverse: bool,
        inplace: bool,
        out: Any,
        out_dtype: Any,
        inv_scale: Any,
        pins: _calls.Pins | None,
        timeout: float | None,
    ) -> Any:
        """apply_rope, whose arguments take a microsecond to pass by name."""
        call = _calls.rope(tensors, positions, spec, preset, config, layout, inverse, inplace, out, out_dtype, inv_scale, pins or self._pins)
        (self._connected or self._connect()).rope(call, timeout)
        return _calls.results(call)

    def apply_rope_(self, *tensors: Any, **kwargs: Any) -> None:
        """apply_rope in place."""
        self.apply_rope(*tensors, inplace=True, **kwargs)

    def apply_rope_large(
        self,
        *tensors: Any,
        positions: Any,
        spec: _spec.SpecLike | None = None,
        preset: str | None = None,
        config: Any = None,
        layout: str = "thd",
        inverse: bool = False,
        inplace: bool = False,
        out: Any = None,
        chunk_bytes: int = 4 << 20,
        progress: bool | Callable[[int, int], None] = False,
        timeout: float | None = None,
    ) -> Any:
        """apply_rope for tensors of any size, also larger than one message.

        They are sent, computed and received in runs of tokens of about `chunk_bytes` at the same
        time. Give it a timeout of its own. If it fails, a part of the outputs may be written, and
        it is not retried. `progress` is a function of (tokens done, all tokens), or True for a bar
        of tqdm, if that is installed.
        """
        call = _calls.rope(tensors, positions, spec, preset, config, layout, inverse, inplace, out, None, None, self._pins)
        with _Progress(progress) as report:
            self._native().rope_in_chunks(call, chunk_bytes, report, timeout)
        return _calls.results(call)

    def move_keys(
        self,
        *keys: Any,
        from_positions: Any,
        positions: Any,
        spec: _spec.SpecLike,
        from_spec: _spec.SpecLike | None = None,
        layout: str = "thd",
        inplace: bool = False,
        out: Any = None,
        pins: _calls.Pins | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Moves cached keys to other positions. See phasor.move_keys."""
        call = _calls.move(keys, from_positions, positions, spec, from_spec, layout, inplace, out, pins or self._pins)
        self._native().rope(call, timeout)
        return _calls.results(call)

    def write_paged(
        self,
        keys: Any,
        values: Any,
        *,
        positions: Any,
        spec: _spec.SpecLike,
        key_cache: Any,
        value_cache: Any,
        slot_mapping: Any,
        layout: str = "thd",
        inv_scale: Any = None,
        pins: _calls.Pins | None = None,
        timeout: float | None = None,
    ) -> None:
        """Rotates keys and writes them, and the values, into the pages of a cache.

        keys, values: [tokens, heads, head_dim]. key_cache, value_cache: [pages, page_size, heads,
        head_dim], of the type of the keys or float8. slot_mapping: int32 or int64 [tokens]: page *
        page_size + slot, or -1 for a token that is not written. inv_scale: float8 only, a factor, or
        one each for keys and values.
        """
        call = _calls.paged(keys, values, positions, spec, key_cache, value_cache, slot_mapping, layout, inv_scale, pins or self._pins)
        self._native().rope(call, timeout)

    def move_paged(
        self,
        pools: Sequence[Any],
        *,
        layouts: Sequence[_moves.KeyLayout],
        layers: Sequence[_moves.KeyLayer],
        groups: Sequence[_moves.KeyGroup],
        specs: Sequence[_moves.KeySpec] = (),
        mode: str = "copy_on_write",
        tolerance: float | None = None,
        pins: _calls.Pins | None = None,
        timeout: float | None = None,
    ) -> _moves.MoveResult:
        """Moves the cached keys of all layers to other positions where they lie. See phasor.move_paged."""
        call = _moves.call(pools, layouts, layers, groups, specs, mode, tolerance, pins or self._pins)
        return _moves.MoveResult._of(self._native().move_keys(call, timeout))

    # --- encodings, biases ------------------------------------------------------------------------

    def encode(
        self,
        spec: _spec.SpecLike | None,
        positions: Any,
        *,
        dtype: Any = None,
        out: Any = None,
        add_to: Any = None,
        scale: float = 1.0,
        form: str = "embedding",
        table: str | None = None,
        clip: bool = False,
        like: Any = None,
        pins: _calls.Pins | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Rows of an encoding, a rotary table or a learned table. See phasor.encode."""
        call, kind = _calls.encode(spec, positions, dtype, out, add_to, scale, form, table, clip, like, pins or self._pins)
        return self._native().encode(call, timeout, kind)

    def attention_bias(
        self,
        kind: str,
        *,
        heads: int,
        queries: Any = None,
        keys: Any = None,
        table: Any = None,
        dtype: Any = None,
        add_to: Any = None,
        out: Any = None,
        like: Any = None,
        pins: _calls.Pins | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> Any:
        """A bias [heads, queries, keys]. See phasor.attention_bias."""
        call, like = _calls.bias(kind, heads, queries, keys, table, dtype, add_to, out, like, pins or self._pins, **fields)
        return self._native().bias(call, timeout, like)

    # --- many calls -------------------------------------------------------------------------------

    def batch(self, *, timeout: float | None = None) -> Batch:
        """Collects calls and makes them at once, in one message to a server.

            with client.batch() as batch:
                first = batch.apply_rope(q, positions=p, spec="llama-3")
                second = batch.encode("transformer", range(8))
            first.result()
        """
        from ._batch import Batch

        return Batch(self, timeout)

    def stream(self, *, timeout: float | None = None) -> Stream:
        """A stream of rotations, or of encodings: each is answered when it is done. `timeout`
        covers the whole stream."""
        from ._stream import Stream

        return Stream(self, timeout)

    # --- memory, tables, the server ---------------------------------------------------------------

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32", *, like: Any = None, timeout: float | None = None) -> Any:
        """An array in memory that the server maps, so that calls neither copy nor send it.

        The server must run on this host with --lease-socket. Otherwise it is ordinary memory: it
        works the same, but is sent. A tensor of torch if `like` is one, else an array of numpy.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        code = _arrays.dtype_code(dtype)
        size = math.prod(shape) * np.dtype(_arrays._BITS.get(code, _arrays.NAMES[code])).itemsize
        memory, _ = self._native().allocate_shared(size, timeout)
        return _arrays.finish(memory.view(_arrays._BITS.get(code, _arrays.NAMES[code])).reshape(shape), code, like)

    @property
    def tables(self) -> Tables:
        """The learned tables of the server, as a mapping: tables["wpe"] = array."""
        return Tables(self)

    def resolve(self, spec: _spec.SpecLike, *, timeout: float | None = None) -> _spec.Resolved:
        """Every number of a spec."""
        return _spec.Resolved(self._native().resolve(_spec.to_spec(spec)._native, timeout), self)

    def resolve_model(
        self, config: Any, *, sub_config: str | None = None, timeout: float | None = None, **fields: Any
    ) -> dict[str, _spec.ModelPart]:
        """As phasor.resolve_model."""
        spec = _spec.model_spec(config, sub_config, fields)
        return _spec.ModelPart._all(self._native().resolve_model(spec, timeout))

    def presets(self, *, timeout: float | None = None) -> list[_spec.Preset]:
        """The presets of the server."""
        return [_spec.Preset._of(values) for values in self._native().presets(timeout)]

    def info(self, *, timeout: float | None = None) -> ServerInfo:
        """What the server says about itself."""
        return ServerInfo(**self._native().info(timeout))

    def health(self, service: str = "", *, timeout: float | None = None) -> bool:
        """Whether the server serves. NotFound: unknown service."""
        return bool(self._native().health(service, timeout) == 1)

    def close(self) -> None:
        """Closes the connection when the calls in flight are done. A closed client raises
        FailedPrecondition."""
        with self._lock:
            self._closed = True
            self._connected = self._devices = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return (_unpickle, (type(self), self._target, {**self._options, "tls": self._options["tls"] or False}, self._pins))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r})"


def _unpickle(cls: type[Client], target: str, options: dict[str, Any], pins: _calls.Pins | None) -> Client:
    return cls(target, **options, pins=pins)


class Tables(MutableMapping[str, Any]):
    """The learned tables of a server. Setting uploads, getting tells shape and type; rows come from
    client.encode(None, positions, table=name)."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getitem__(self, name: str) -> Table:
        try:
            return Table._of(self._client._native().get_table(name, None))
        except _errors.NotFound as error:
            raise _errors.NoTable(str(error)) from None

    def __setitem__(self, name: str, values: Any) -> None:
        _arrays.check_mask(values, "values")
        self._client._native().create_table(name, values, None)

    def __delitem__(self, name: str) -> None:
        try:
            self._client._native().delete_table(name, None)
        except _errors.NotFound as error:
            raise _errors.NoTable(str(error)) from None

    def __iter__(self) -> Iterator[str]:
        return iter([values["name"] for values in self._client._native().list_tables(None)])

    def __len__(self) -> int:
        return len(self._client._native().list_tables(None))


class _Progress:
    """The function that a call reports its progress to: the caller's, tqdm's, or None."""

    def __init__(self, progress: bool | Callable[[int, int], None]) -> None:
        self._progress = progress
        self._bar: Any = None

    def __enter__(self) -> Callable[[int, int], None] | None:
        if self._progress is not True:
            return self._progress or None
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped]
        except ImportError:
            return None
        self._bar = tqdm(unit="token")
        return self._report

    def _report(self, done: int, every: int) -> None:
        self._bar.total = every
        self._bar.update(done - self._bar.n)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
