# SPDX-License-Identifier: Apache-2.0
"""Arrays in the memory of a GPU. CUDA exports the allocation that an array lies in, and a client
registers it with its server, which computes there (docs/shared-memory.md, "Device memory").

CUDA is asked through its driver library, which whoever made the array has loaded."""

from __future__ import annotations

import ctypes
import functools
import uuid
import weakref
from typing import Any, NamedTuple

from . import _arrays, _errors

# CUpointer_attribute: context, buffer id, device ordinal, whether CUDA IPC exports it, start, bytes.
_ATTRIBUTES = (ctypes.c_int * 6)(1, 7, 9, 10, 11, 12)
_HANDLE_BYTES = 64

_EXPANDABLE = (
    "CUDA IPC cannot export the memory that it lies in; for torch, start the program with "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False and without backend:cudaMallocAsync; elsewhere, use memory of "
    "cudaMalloc, not of a stream-ordered pool, managed or mapped by cuMemMap"
)


class _Block(NamedTuple):
    """An allocation of CUDA. `id` is never that of another allocation of this process."""

    context: int
    id: int
    device: int
    exportable: int
    start: int
    bytes: int


class _Driver:
    """The functions of libcuda.so.1 that are needed. Threads: any."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise _errors.FailedPrecondition(f"device: NVIDIA's driver library cannot be loaded ({error})") from error

    def _call(self, function: str, *arguments: Any) -> int:
        return int(getattr(self._cuda, function)(*arguments))

    def _within(self, context: int, function: str, *arguments: Any) -> int:
        """Calls a function that works on the current context of the thread."""
        self._call("cuCtxPushCurrent_v2", ctypes.c_void_p(context))
        try:
            return self._call(function, *arguments)
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def block(self, address: int, path: str) -> _Block:
        """The allocation that an address lies in."""
        values = (ctypes.c_uint64 * len(_ATTRIBUTES))()  # zeros: some attributes have fewer bytes
        places = (ctypes.c_void_p * len(values))(*[ctypes.addressof(values) + 8 * i for i in range(len(values))])
        error = self._call("cuPointerGetAttributes", len(values), _ATTRIBUTES, places, ctypes.c_uint64(address))
        block = _Block(*values)
        if error or not block.bytes:
            raise _errors.InvalidArgument(f"{path}: CUDA knows no memory at {address:#x} (error {error})")
        return block

    def export(self, block: _Block, path: str) -> bytes:
        handle = (ctypes.c_char * _HANDLE_BYTES)()
        if not block.exportable or self._within(block.context, "cuIpcGetMemHandle", handle, ctypes.c_uint64(block.start)):
            raise _errors.FailedPrecondition(f"{path}: {_EXPANDABLE}")
        return bytes(handle)

    def device_uuid(self, number: int) -> str:
        """As ServerInfo.device_uuid."""
        device, digits = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if self._call("cuDeviceGet", ctypes.byref(device), number) or self._call("cuDeviceGetUuid_v2", digits, device):
            raise _errors.FailedPrecondition(f"device: CUDA does not tell the UUID of device {number}")
        return f"GPU-{uuid.UUID(bytes=bytes(digits))}"

    def synchronize(self, block: _Block, stream: int, path: str) -> None:
        """Waits until the work is done that a stream has so far."""
        error = self._within(block.context, "cuStreamSynchronize", ctypes.c_void_p(stream))
        if error:
            raise _errors.Internal(f"{path}: work on the GPU that comes before this call failed (CUDA error {error})")


_driver = functools.cache(_Driver)


def _owner(array: Any) -> Any:
    """The object whose end means that the array's memory may be freed. Views share it."""
    if _arrays.kind_of(array) == _arrays.TORCH:
        return array.untyped_storage()
    while (base := getattr(array, "base", None)) is not None:
        array = base
    return array


class _Registration:
    """An allocation that a server knows. `owners`: ids of the objects that lie in it and live."""

    def __init__(self, memory: Any, start: int) -> None:
        self.memory = memory
        self.start = start
        self.owners: set[int] = set()


class Devices:
    """The memory of GPUs that one client has registered. An allocation stays registered while an
    array lives that lay in it in some call. Threads: any."""

    def __init__(self) -> None:
        self._registrations: dict[int, _Registration] = {}
        self._refusals = _errors.refusals()

    def place(self, client: Any, array: Any, address: int, stream: int | None, path: str) -> tuple[Any, int]:
        """(native.DeviceMemory, offset in it) of an array, once the work of its stream is done.
        `client` is the native one, whose server gets to know the memory."""
        driver = _driver()
        block = driver.block(address, path)
        if self._refusals != _errors.refusals():  # the server may have forgotten it, or was replaced
            self._refusals = _errors.refusals()
            self._registrations.clear()
        registration = self._registrations.get(block.id)
        if registration is None:
            handle = driver.export(block, path)
            memory = client.register_device_memory(handle, block.bytes, driver.device_uuid(block.device), None)
            registration = self._registrations[block.id] = _Registration(memory, block.start)
        if stream is not None:
            driver.synchronize(block, stream, path)
        self._watch(block.id, registration, _owner(array))
        return registration.memory, address - registration.start

    def _watch(self, block: int, registration: _Registration, owner: Any) -> None:
        key = id(owner)
        if key in registration.owners:
            return
        try:
            # Runs before the owner's memory goes, and also when the program ends.
            weakref.finalize(owner, _drop, weakref.ref(self), block, registration.owners, key)
        except TypeError:  # nobody says when it ends: registered for this call
            _forget(self._registrations, block, registration.owners)
            return
        registration.owners.add(key)


def _drop(devices: weakref.ref[Devices], block: int, owners: set[int], key: int) -> None:
    owners.discard(key)
    self = devices()
    if self is not None:
        _forget(self._registrations, block, owners)


def _forget(registrations: dict[int, _Registration], block: int, owners: set[int]) -> None:
    """Ends a registration without owners, once no call uses it."""
    registration = registrations.get(block)
    if not owners and registration is not None and registration.owners is owners:
        del registrations[block]
