# SPDX-License-Identifier: Apache-2.0
"""Arrays on a GPU: a server with a fake one computes where they lie. CUDA's driver is fake_cuda.cc and
torch a class of this file, so what hardware and torch do is not shown here."""

import asyncio
import ctypes
import gc
import mmap
import os
import pathlib
import subprocess
import sys
import types

import ml_dtypes
import numpy as np
import pytest
import truth

import phasor
from phasor.testing import Server

FOLDER = pathlib.Path(os.environ.get("PHASOR_FAKE_GPU", ""))
SERVER, CUDA = FOLDER / "python_device_server", FOLDER / "cuda" / "libcuda.so.1"
pytestmark = pytest.mark.skipif(not SERVER.exists(), reason="the server with a fake GPU is not built here")

HALF = phasor.Spec("rope-half-split", head_dim=16)


class Memory:
    """An allocation of the fake GPU, which this process maps to look at it."""

    def __init__(self, cuda, pid, fd, size, handle):
        self.cuda, self.size, self.handle = cuda, size, handle
        with open(f"/proc/{pid}/fd/{fd}", "r+b") as file:
            self.map = mmap.mmap(file.fileno(), size)
        self.bytes = np.frombuffer(self.map, np.uint8)
        self.start = self.bytes.ctypes.data
        self.allocate()

    def allocate(self, exportable=True):
        self.cuda.fake_cuda_allocate(ctypes.c_uint64(self.start), ctypes.c_uint64(self.size), exportable, self.handle)

    def array(self, offset, shape, dtype="float32", **kwargs):
        return OnGpu(np.ndarray(shape, dtype, self.map, offset), **kwargs)


class OnGpu:
    """As an array of cupy or numba. `host` is how this process sees it."""

    def __init__(self, host, stream=7, read_only=False, base=None):
        self.host, self.stream, self.read_only, self.base = host, stream, read_only, base
        self.shape, self.dtype = host.shape, host.dtype

    @property
    def __cuda_array_interface__(self):
        data = (self.host.ctypes.data, self.read_only)
        strides = None if self.host.flags.c_contiguous else self.host.strides
        return {"version": 3, "shape": self.shape, "typestr": self.host.dtype.str, "data": data, "strides": strides, "stream": self.stream}

    def __getitem__(self, index):
        return OnGpu(self.host[index], self.stream, self.read_only, self)

    def fill(self, rng):
        self.host[...] = rng.standard_normal(self.shape).astype(self.dtype)
        return self.host.copy()


@pytest.fixture(scope="module")
def cuda():
    return ctypes.CDLL(str(CUDA))


@pytest.fixture
def server():
    with Server(program=str(SERVER)) as server:
        yield server


@pytest.fixture
def memories(cuda, server):
    lines = [line.split() for line in server.log().splitlines()]
    made = [Memory(cuda, server.pid, line[1], int(line[2]), bytes.fromhex(line[3])) for line in lines if line[0] == "memory"]
    yield made
    for memory in made:
        cuda.fake_cuda_free(ctypes.c_uint64(memory.start))
    while cuda.fake_cuda_synchronized() >= 0:
        pass


@pytest.fixture
def memory(memories):
    return memories[0]


@pytest.fixture
def client(server, memories):
    with phasor.Client(server.target) as client:
        yield client


@pytest.fixture
def rng():
    return np.random.default_rng(9)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16])
def test_tensors_are_rotated_where_they_lie(cuda, memory, client, rng, dtype):
    fused = memory.array(4096, (7, 9, 16), dtype)
    before = fused.fill(rng)
    others = memory.bytes.copy()
    q, k = fused[:, :6], fused[:, 6:8]
    assert client.apply_rope(q, k, positions=range(100, 107), spec=HALF, inplace=True) == (q, k)
    wanted = before.copy()
    phasor.apply_rope_(wanted[:, :6], wanted[:, 6:8], positions=range(100, 107), spec=HALF)
    assert truth.bytes_of(fused.host) == truth.bytes_of(wanted)
    fused.host[...] = before
    assert (memory.bytes == others).all(), "memory outside of the tensors was written"
    assert [cuda.fake_cuda_synchronized() for _ in range(3)] == [7, 7, -1], "the work that makes an array was not waited for"


def test_outputs_may_be_elsewhere_and_tensors_beside_them_on_the_host(memories, client, rng):
    x, out = memories[0].array(64, (7, 3, 16)), memories[1].array(128, (7, 3, 16))
    before = x.fill(rng)
    wanted = phasor.apply_rope(before, positions=range(7), spec=HALF)
    assert client.apply_rope(x, positions=range(7), spec=HALF, out=out) is out
    assert np.array_equal(out.host, wanted) and np.array_equal(x.host, before)
    there, here = client.apply_rope(x, before, positions=range(7), spec=HALF, out=[out, np.empty_like(before)])
    assert np.array_equal(there.host, wanted) and np.array_equal(here, wanted)
    down = client.apply_rope(x, positions=range(7), spec=HALF, out=np.empty_like(before))  # asked for
    assert np.array_equal(down, wanted)
    with pytest.raises(TypeError, match="OnGpu on a GPU; pass out="):
        client.apply_rope(x, positions=range(7), spec=HALF)


def test_every_call_that_may_takes_them(memories, client, rng):
    memory = memories[0]
    rows, added = memory.array(0, (5, 8)), memory.array(1024, (5, 8))
    spec = {"preset": "transformer", "dim": 8}
    assert client.encode(spec, range(5), out=rows) is rows
    assert np.array_equal(rows.host, phasor.encode(spec, range(5)))
    before = added.fill(rng)
    client.encode(spec, range(5), add_to=added, out=rows)
    assert np.array_equal(rows.host, phasor.encode(spec, range(5), add_to=before))

    keys = memory.array(4096, (4, 2, 16))
    before = keys.fill(rng)
    client.move_keys(keys, from_positions=range(4), positions=range(9, 13), spec=HALF, inplace=True)
    assert np.array_equal(keys.host, phasor.move_keys(before, from_positions=range(4), positions=range(9, 13), spec=HALF))

    key_cache, value_cache = memory.array(8192, (2, 4, 2, 16)), memory.array(16384, (2, 4, 2, 16))
    values = memories[1].array(0, (4, 2, 16))
    mine = [each.fill(rng) for each in (keys, values, key_cache, value_cache)]
    call = {"positions": range(4), "spec": HALF, "slot_mapping": [5, 0, -1, 3]}
    call["slot_mapping"] = np.array(call["slot_mapping"])
    client.write_paged(keys, values, key_cache=key_cache, value_cache=value_cache, **call)
    phasor.write_paged(mine[0], mine[1], key_cache=mine[2], value_cache=mine[3], **call)
    assert np.array_equal(key_cache.host, mine[2]) and np.array_equal(value_cache.host, mine[3])

    pool = memory.array(32768, (4, 16, 2, 16))
    mine = pool.fill(rng)
    move = {
        "layouts": [phasor.KeyLayout("nhd", "float32", pages=4, page_size=16, heads=2, head_dim=16)],
        "specs": [phasor.KeySpec(HALF)],
        "layers": [phasor.KeyLayer(layout=0, spec=0, group=0)],
        "groups": [phasor.KeyGroup([phasor.KeyRun(block_table=[3, 1], count=20, from_=500, to=0)])],
        "mode": "move",
    }
    assert client.move_paged([pool], **move).tokens == 20
    phasor.move_paged([mine], **move)
    assert np.array_equal(pool.host, mine)


def test_batches_streams_and_coroutines_take_them(memory, client, server, rng):
    arrays = [memory.array(4096 * i, (3, 2, 16)) for i in range(6)]
    wanted = [phasor.apply_rope(each.fill(rng), positions=range(i, i + 3), spec=HALF) for i, each in enumerate(arrays)]
    with client.batch() as batch:
        for i in (0, 1):
            batch.apply_rope(arrays[i], positions=range(i, i + 3), spec=HALF, inplace=True)
    with client.stream() as stream:
        for i in (2, 3):
            stream.apply_rope(arrays[i], positions=range(i, i + 3), spec=HALF, inplace=True)
        for answer in stream:
            answer.result()

    async def both():
        async with phasor.AsyncClient(server.target) as client:
            await asyncio.gather(*(client.apply_rope_(arrays[i], positions=range(i, i + 3), spec=HALF) for i in (4, 5)))

    asyncio.run(both())
    for each, want in zip(arrays, wanted, strict=True):
        assert np.array_equal(each.host, want)


def test_an_allocation_is_registered_once_while_its_arrays_live(cuda, memories, client, server, rng):
    cache = memories[0].array(0, (64, 2, 16))
    exports = cuda.fake_cuda_exports()
    for step in range(20):  # each time another view
        client.apply_rope_(cache[step : step + 1], positions=step, spec=HALF)
    assert cuda.fake_cuda_exports() == exports + 1
    other = memories[1].array(0, (1, 2, 16))
    client.apply_rope_(other, cache[:1], positions=0, spec=HALF)
    assert cuda.fake_cuda_exports() == exports + 2
    del cache
    gc.collect()
    memories[0].allocate()  # as if it had been freed, and another allocation had its address
    again = memories[0].array(0, (1, 2, 16))
    before = again.fill(rng)
    client.apply_rope_(again, other, positions=3, spec=HALF)
    assert cuda.fake_cuda_exports() == exports + 3
    assert np.array_equal(again.host, phasor.apply_rope(before, positions=3, spec=HALF))
    del again, other
    gc.collect()
    assert not client._devices._registrations
    client.close()
    server.stop()


def test_memory_is_registered_again_after_the_server_may_have_forgotten_it(cuda, memory, client):
    x = memory.array(0, (1, 2, 16))
    client.apply_rope_(x, positions=0, spec=HALF)
    exports = cuda.fake_cuda_exports()
    with pytest.raises(phasor.NotFound):
        client.health("no such service")
    client.apply_rope_(x, positions=0, spec=HALF)
    assert cuda.fake_cuda_exports() == exports + 1


def test_memory_that_cuda_ipc_refuses_is_refused_with_the_setting(memory, client):
    memory.allocate(exportable=False)
    with pytest.raises(phasor.FailedPrecondition, match=r"^tensors\[0\]: .*PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"):
        client.apply_rope_(memory.array(0, (1, 2, 16)), positions=0, spec=HALF)
    host = np.ones((1, 2, 16), np.float32)
    with client.stream() as stream:  # the refusal of one call does not end it
        first = stream.apply_rope(host, positions=0, spec=HALF)
        with pytest.raises(phasor.FailedPrecondition, match=r"^tensors\[0\]: "):
            stream.apply_rope(memory.array(0, (1, 2, 16)), positions=0, spec=HALF, inplace=True)
        last = stream.apply_rope(host, positions=0, spec=HALF)
        assert {answer.id: answer.exception() for answer in stream} == {first: None, last: None}


def test_what_cannot_be_is_refused_before_anything_is_done(cuda, memory, client, phasor_server, rng):
    x = memory.array(0, (4, 2, 16))
    before = x.fill(rng)
    call = {"positions": range(4), "spec": HALF}
    with pytest.raises(TypeError, match=r"^tensors\[0\]: lies on a GPU, and nothing copies it to the host unasked"):
        phasor.apply_rope_(x, **call)
    with pytest.raises(phasor.FailedPrecondition, match="--shared-memory"), phasor.Client(phasor_server.target) as other:
        other.apply_rope_(x, **call)
    with pytest.raises(phasor.FailedPrecondition, match="target: not one server of this host"), phasor.Client("dns:///elsewhere:1") as other:
        other.apply_rope_(x, **call)
    with pytest.raises(TypeError, match=r"^tensors\[0\]: lies on a GPU"):
        client.apply_rope_large(x, **call, inplace=True)
    with pytest.raises(TypeError, match="add_to: lies on a GPU"):
        client.attention_bias("alibi", heads=2, queries=range(4), keys=range(4), add_to=memory.array(0, (2, 4, 4)))
    with pytest.raises(TypeError, match="positions: lies on a GPU"):
        client.apply_rope_(x, positions=memory.array(0, (4,), "int64"), spec=HALF)
    with pytest.raises(TypeError, match="positions: on a GPU"):
        client.encode({"preset": "transformer", "dim": 8}, memory.array(0, (4,), "int16"))
    with pytest.raises(phasor.InvalidArgument, match="like: on a GPU"):
        client.encode({"preset": "transformer", "dim": 8}, range(4), like=x)
    with pytest.raises(phasor.InvalidArgument, match=r"tensors\[0\]: a read-only array"):
        client.apply_rope_(memory.array(0, (4, 2, 16), read_only=True), **call)
    with pytest.raises(phasor.InvalidArgument, match=r"tensors\[0\].strides: the last dimension is not contiguous"):
        client.apply_rope_(x[..., ::2], positions=range(4), spec="rope-half-split")
    with pytest.raises(phasor.InvalidArgument, match="CUDA knows no memory at"):
        client.apply_rope_(OnGpu(before), **call)
    cuda.fake_cuda_fail_streams(1)
    with pytest.raises(phasor.Internal, match=r"tensors\[0\]: work on the GPU that comes before this call failed"):
        client.apply_rope_(x, **call)
    cuda.fake_cuda_fail_streams(0)
    assert np.array_equal(x.host, before)
    client.apply_rope_(x, **call)
    assert np.array_equal(x.host, phasor.apply_rope(before, **call))


@pytest.fixture
def cupy(monkeypatch, memories):
    """As cupy with arrays in the second allocation, as far as the package looks at it."""

    class Device:
        current = 0

        def __enter__(self):
            Device.current += 1

        def __exit__(self, *_):
            Device.current -= 1

    class ndarray(OnGpu):  # noqa: N801 as cupy's
        device = Device()

        def copy(self):
            copied = empty(self.shape, self.dtype)
            copied.host[...] = self.host
            return copied

        def __getitem__(self, index):
            return ndarray(self.host[index], self.stream, self.read_only, self)

    taken = [0]

    def empty(shape, dtype):
        taken[0] += 8192
        return ndarray(np.ndarray(shape, dtype, memories[1].map, taken[0]))

    ndarray.__module__ = "cupy"
    module = types.ModuleType("cupy")
    module.ndarray, module.Device, module.empty = ndarray, Device, empty
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_results_of_cupy_are_new_arrays_on_the_gpu(cuda, cupy, client, rng):
    made, empty = [], cupy.empty

    def on_device(shape, dtype):
        made.append(cupy.Device.current)
        return empty(shape, dtype)

    cupy.empty = on_device
    for dtype in ("float32", "float16", ml_dtypes.bfloat16):
        x = empty((7, 3, 16), np.dtype(dtype))
        before = x.fill(rng)
        wanted = phasor.apply_rope(before, positions=range(7), spec=HALF)
        y = client.apply_rope(x, positions=range(7), spec=HALF)
        assert type(y) is cupy.ndarray and y.host.tobytes() == wanted.tobytes() and x.host.tobytes() == before.tobytes()
        assert made.pop() == 1, "made on the device of the input"
        assert cuda.fake_cuda_synchronized() == 7, "the stream that the array named"
        client.apply_rope_(x, positions=range(7), spec=HALF)
        assert x.host.tobytes() == wanted.tobytes()
        while cuda.fake_cuda_synchronized() >= 0:
            pass
    # A view whose last dimension is not contiguous: a dense copy on the GPU is read; it is not written.
    x = empty((16, 7, 16), np.dtype("float32"))
    before = x.fill(rng).transpose(2, 1, 0)
    turned = cupy.ndarray(x.host.transpose(2, 1, 0), base=x)
    y = client.apply_rope(turned, positions=range(16), spec=HALF)
    assert np.array_equal(y.host, phasor.apply_rope(before, positions=range(16), spec=HALF))
    with pytest.raises(phasor.InvalidArgument, match="not contiguous"):
        client.apply_rope_(turned, positions=range(16), spec=HALF)
    y8 = client.apply_rope(empty((7, 3, 16), np.dtype("float16")), positions=range(7), spec=HALF, out_dtype="float8_e4m3")
    assert type(y8) is cupy.ndarray and y8.dtype == ml_dtypes.float8_e4m3fn
    with pytest.raises(TypeError, match="nothing copies"):
        phasor.apply_rope(x, positions=range(16), spec=HALF)


def test_without_a_driver_it_is_said():
    code = """
import numpy as np, phasor
class Array:
    __cuda_array_interface__ = {"shape": (1, 1, 16), "typestr": "<f4", "data": (4096, False), "version": 3}
    dtype = np.dtype("float32")
try:
    phasor.Client("unix:/nowhere").apply_rope_(Array(), positions=0, spec="llama-3")
except phasor.FailedPrecondition as error:
    assert "driver library cannot be loaded" in str(error), error
    print("said")
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, "LD_LIBRARY_PATH": ""})
    if "InvalidArgument" in said.stderr:
        pytest.skip("this machine has a driver")
    assert said.stdout == "said\n", said.stderr


@pytest.fixture
def torch(monkeypatch, memories):
    """As torch with CUDA tensors in the second allocation, as far as the package looks at it."""

    class Dtype:
        def __repr__(self):
            return "torch.float32"

    class Storage:
        pass

    class Tensor:
        is_cpu, is_cuda, requires_grad, device = False, True, False, "cuda:0"

        def __init__(self, host, storage=None):
            self.host, self.storage = host, storage or Storage()
            self.shape, self.dtype = host.shape, module.float32

        def __getitem__(self, index):
            return Tensor(self.host[index], self.storage)

        is_neg = staticmethod(lambda: False)
        element_size = staticmethod(lambda: 4)
        stride = lambda self: tuple(n // 4 for n in self.host.strides)
        data_ptr = lambda self: self.host.ctypes.data
        untyped_storage = lambda self: self.storage

    taken = [0]

    def empty(shape, dtype, device):
        assert device == "cuda:0" and dtype is module.float32
        taken[0] += 4096
        return Tensor(np.ndarray(shape, "float32", memories[1].map, taken[0]))

    module = types.ModuleType("torch")
    written = []
    module.float32, module.Tensor, module.empty, module.written = Dtype(), Tensor, empty, written
    module.cuda = types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(cuda_stream=0x5000))
    module.autograd = types.SimpleNamespace(graph=types.SimpleNamespace(increment_version=written.append))
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_results_of_torch_are_new_tensors_on_the_gpu(cuda, torch, client, rng):
    fused = torch.empty((7, 9, 16), torch.float32, "cuda:0")
    fused.host[...] = before = rng.standard_normal((7, 9, 16)).astype(np.float32)
    exports = cuda.fake_cuda_exports()
    y = client.apply_rope(fused[:, 2:5], positions=range(7), spec=HALF)
    assert isinstance(y, torch.Tensor) and np.array_equal(fused.host, before)
    wanted = phasor.apply_rope(before[:, 2:5], positions=range(7), spec=HALF)
    assert np.array_equal(y.host, wanted)
    assert [cuda.fake_cuda_synchronized() for _ in range(3)] == [0x5000, 0x5000, -1]
    torch.written.clear()
    client.apply_rope_(fused[:, 2:5], positions=range(7), spec=HALF)
    assert np.array_equal(fused.host[:, 2:5], wanted) and len(torch.written) == 1
    assert cuda.fake_cuda_exports() == exports + 1, "views of one storage"
    storage, devices = fused.storage, client._devices
    torch.written.clear()
    del fused, y
    gc.collect()
    assert len(devices._registrations) == 1
    del storage
    gc.collect()
    assert not devices._registrations
    with pytest.raises(TypeError, match="lies on cuda:0, and nothing copies it to the host unasked"):
        phasor.apply_rope_(torch.empty((1, 1, 16), torch.float32, "cuda:0"), positions=0, spec=HALF)
