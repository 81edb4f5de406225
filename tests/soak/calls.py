# SPDX-License-Identifier: Apache-2.0
"""Calls of every kind, each with a check of its answer. A call that ends as the chaos around it allows raises nothing; a wrong
answer raises Wrong."""

import contextlib
import fcntl
import hashlib
import mmap
import os
import random
import socket
from multiprocessing import shared_memory

import grpc
import numpy as np
from inference import grpc_service_pb2 as oip
from inference import grpc_service_pb2_grpc as oip_grpc
from phasor.v1 import attention_bias_pb2 as bias_pb2
from phasor.v1 import position_embedding_service_pb2 as pb
from phasor.v1 import position_embedding_service_pb2_grpc as pb_grpc
from phasor.v1 import server_info_pb2 as info
from phasor.v1 import shared_memory_service_pb2 as shm
from phasor.v1 import shared_memory_service_pb2_grpc as shm_grpc
from phasor.v1 import table_service_pb2 as tables
from phasor.v1 import table_service_pb2_grpc as tables_grpc
from phasor.v1 import tensor_pb2 as t

HEADS, LANES = 4, 64
MIB = 1 << 20


class Wrong(Exception):
    pass


def angles(positions, pairs):
    return np.multiply.outer(np.asarray(positions, np.float64), 10000.0 ** (-np.arange(pairs) / pairs))


def encoded(start, count, dim):
    """The preset `transformer`."""
    turns = angles(range(start, start + count), dim // 2)
    return np.stack([np.sin(turns), np.cos(turns)], -1).reshape(count, dim)


def rotated(tensor, start):
    """The preset `rope-interleaved`."""
    turns = angles(range(start, start + len(tensor)), tensor.shape[-1] // 2)[:, None, :]
    even, odd = tensor[..., 0::2].astype(np.float64), tensor[..., 1::2].astype(np.float64)
    return np.stack([even * np.cos(turns) - odd * np.sin(turns), even * np.sin(turns) + odd * np.cos(turns)], -1).reshape(tensor.shape)


def same(got, wanted, what):
    got = np.frombuffer(got, np.float32) if isinstance(got, (bytes, memoryview)) else np.asarray(got)
    wanted = np.asarray(wanted)
    if got.size != wanted.size or not np.allclose(got.reshape(wanted.shape), wanted, rtol=0, atol=1e-6):
        raise Wrong(f"{what}: the numbers differ")


def succeeded(status, what):
    """Whether an item of a batch or stream was computed; without room it need not be."""
    if status.code not in (0, grpc.StatusCode.UNAVAILABLE.value[0], grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]):
        raise Wrong(f"{what}: {status.code} {status.message}")
    return status.code == 0


def range_of(start, count):
    return t.Positions(range=t.AxisRange(integer=t.IntegerRange(start=start, count=count)))


class Caller:
    """One connection and the calls over it."""

    def __init__(self, channel, lease_socket, seed):
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.lease_socket = lease_socket
        self.phasor = pb_grpc.PositionEmbeddingServiceStub(channel)
        self.oip = oip_grpc.GRPCInferenceServiceStub(channel)
        self.memory = shm_grpc.SharedMemoryServiceStub(channel)
        self.tables = tables_grpc.TableServiceStub(channel)
        self.first_bias = None
        self.calls = [
            self.encode, self.rope, self.large_rope, self.batch, self.stream, self.chunks, self.region, self.lease, self.table,
            self.infer, self.infer_stream, self.bias, self.information, self.wide_plan, self.wrong, self.cancelled, self.hurried,
        ]


    # Requests ---------------------------------------------------------------------------------

    def encode_item(self, start, count, dim):
        item = pb.EncodeItem(positions=range_of(start, count), output_dtype=t.DTYPE_FLOAT32)
        item.spec.preset, item.spec.dim = "transformer", dim
        return item

    def rope_item(self, start, tensor):
        item = pb.ApplyRoPEItem(
            positions=range_of(start, len(tensor)), direction=pb.DIRECTION_FORWARD, layout=pb.ROPE_LAYOUT_TOKENS_HEADS
        )
        item.spec.preset, item.spec.head_dim = "rope-interleaved", tensor.shape[-1]
        item.tensors.add().tensor.CopyFrom(t.TensorSpec(dtype=t.DTYPE_FLOAT32, shape=tensor.shape))
        return item

    def tensor(self, tokens):
        return self.numbers.random((tokens, HEADS, LANES), np.float32)

    def start(self):
        return self.random.randrange(100000)

    # Calls ------------------------------------------------------------------------------------

    def encode(self):
        start, count, dim = self.start(), self.random.randrange(1, 200), 2 * self.random.randrange(1, 300)
        answer = self.phasor.Encode(pb.EncodeRequest(item=self.encode_item(start, count, dim)), timeout=60)
        same(answer.raw[0], encoded(start, count, dim), "Encode")

    def rope(self, tokens=None):
        start, tensor = self.start(), self.tensor(tokens or self.random.randrange(1, 100))
        answer = self.phasor.ApplyRoPE(pb.ApplyRoPERequest(item=self.rope_item(start, tensor), raw=[tensor.tobytes()]), timeout=60)
        same(answer.raw[0], rotated(tensor, start), "ApplyRoPE")

    def large_rope(self):
        self.rope(self.random.randrange(2000, 6000))  # 2 to 6 MiB

    def batch(self):
        starts = [self.start() for _ in range(self.random.randrange(1, 8))]
        request = pb.BatchEncodeRequest(items=[self.encode_item(s, 3, 32) for s in starts])
        answer = self.phasor.BatchEncode(request, timeout=60)
        raw = iter(answer.raw)
        for start, result in zip(starts, answer.results, strict=True):
            if succeeded(result.status, "BatchEncode"):
                same(next(raw), encoded(start, 3, 32), "BatchEncode")

    def stream(self):
        starts = {i: self.start() for i in range(self.random.randrange(1, 30))}
        requests = [pb.StreamEncodeRequest(id=i, item=self.encode_item(s, 5, 64)) for i, s in starts.items()]
        for answer in self.phasor.StreamEncode(iter(requests), timeout=60):
            if succeeded(answer.result.status, "StreamEncode"):
                same(answer.raw[0], encoded(starts.pop(answer.id), 5, 64), "StreamEncode")

    def chunks(self):
        start, tensor, run = self.start(), self.tensor(300), 100
        opening = pb.StreamApplyRoPERequest(id=1, item=self.rope_item(start, tensor), chunked=True)
        pieces = [
            pb.StreamApplyRoPERequest(id=1, chunk=pb.Chunk(first_token=i, tokens=run), raw=[tensor[i : i + run].tobytes()])
            for i in range(0, len(tensor), run)
        ]
        for answer in self.phasor.StreamApplyRoPE(iter([opening, *pieces]), timeout=60):
            if succeeded(answer.result.status, "StreamApplyRoPE") and answer.raw:
                first = answer.chunk.first_token
                same(answer.raw[0], rotated(tensor[first : first + run], start + first), "StreamApplyRoPE")

    def region(self):
        start, tensor = self.start(), self.tensor(20)
        memory = shared_memory.SharedMemory(create=True, size=tensor.nbytes)
        name = f"{os.getpid()}-{self.random.getrandbits(60)}"
        try:
            memory.buf[: tensor.nbytes] = tensor.tobytes()
            region = shm.Region(name=name, size_bytes=tensor.nbytes, posix=shm.PosixRegion(key="/" + memory.name.lstrip("/")))
            self.memory.Register(shm.RegisterRequest(region=region), timeout=60)
            item = self.rope_item(start, tensor)
            item.tensors[0].tensor.region.region = name
            item.tensors[0].destination.CopyFrom(item.tensors[0].tensor)
            self.phasor.ApplyRoPE(pb.ApplyRoPERequest(item=item), timeout=60)
            same(bytes(memory.buf[: tensor.nbytes]), rotated(tensor, start), "ApplyRoPE in a region")
            if self.random.random() < 0.8:  # others are left behind
                self.memory.Unregister(shm.UnregisterRequest(name=name), timeout=60)
        finally:
            memory.close()
            memory.unlink()

    def lease(self):
        start, tensor = self.start(), self.tensor(200)
        fd = os.memfd_create("soak", os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(fd, 0, tensor.nbytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            with mmap.mmap(fd, tensor.nbytes) as data, socket.socket(socket.AF_UNIX) as lease:
                data[:] = tensor.tobytes()
                lease.settimeout(60)
                lease.connect(self.lease_socket)
                socket.send_fds(lease, [b"LEASE\n"], [fd])
                answer = lease.recv(200).split()
                if answer[0] != b"OK":
                    return  # as many as there may be
                item = self.rope_item(start, tensor)
                item.tensors[0].tensor.region.region = answer[1].decode()
                item.tensors[0].destination.CopyFrom(item.tensors[0].tensor)
                self.phasor.ApplyRoPE(pb.ApplyRoPERequest(item=item), timeout=60)
                same(data[:], rotated(tensor, start), "ApplyRoPE in a lease")
        finally:
            os.close(fd)

    def table(self):
        name, rows = f"t{self.random.randrange(20)}", self.numbers.random((50, 16), np.float32)
        raw = rows.tobytes()
        first = tables.CreateTableRequest(
            table=tables.Table(
                name=name, tensor=t.TensorSpec(dtype=t.DTYPE_FLOAT32, shape=rows.shape), sha256=hashlib.sha256(raw).hexdigest()
            )
        )
        self.tables.CreateTable(iter([first, tables.CreateTableRequest(raw=[raw[:1000]]), tables.CreateTableRequest(raw=[raw[1000:]])]), timeout=60)
        with contextlib.suppress(grpc.RpcError):  # others replace and delete it
            answer = self.phasor.Encode(pb.EncodeRequest(item=pb.EncodeItem(table=name, positions=range_of(0, 50), output_dtype=t.DTYPE_FLOAT32)), timeout=60)
            if len(answer.raw[0]) != len(raw):
                raise Wrong("Encode from a table: another size")
            if self.random.random() < 0.5:
                self.tables.DeleteTable(tables.DeleteTableRequest(name=name), timeout=60)

    def infer_request(self, start, count, dim):
        request = oip.ModelInferRequest(model_name="transformer", id=str(start))
        request.parameters["dim"].int64_param = dim
        inputs = request.inputs.add(name="POSITIONS", datatype="INT64", shape=[count])
        inputs.parameters["binary_data_size"].int64_param = 8 * count  # as KServe's client does
        request.raw_input_contents.append(np.arange(start, start + count, dtype=np.int64).tobytes())
        return request

    def infer(self):
        start, count, dim = self.start(), self.random.randrange(1, 50), 128
        answer = self.oip.ModelInfer(self.infer_request(start, count, dim), timeout=60)
        same(answer.raw_output_contents[0], encoded(start, count, dim), "ModelInfer")

    def infer_stream(self):
        starts = [self.start() for _ in range(10)]
        for start, answer in zip(starts, self.oip.ModelStreamInfer((self.infer_request(s, 3, 64) for s in starts), timeout=60), strict=False):
            if not answer.error_message:
                same(answer.infer_response.raw_output_contents[0], encoded(start, 3, 64), "ModelStreamInfer")

    def bias(self):
        item = bias_pb2.AttentionBiasItem(preset="alibi", heads=8, query_positions=range_of(0, 30), key_positions=range_of(0, 30), output_dtype=t.DTYPE_FLOAT32)
        raw = self.phasor.AttentionBias(bias_pb2.AttentionBiasRequest(item=item), timeout=60).raw[0]
        if self.first_bias is None:
            self.first_bias = raw
        if raw != self.first_bias or len(raw) != 8 * 30 * 30 * 4:
            raise Wrong("AttentionBias: other bytes than before")

    def information(self):
        if not self.phasor.ListPresets(info.ListPresetsRequest(), timeout=60).presets:
            raise Wrong("ListPresets: no presets")
        if not self.oip.ServerLive(oip.ServerLiveRequest(), timeout=60).live:
            raise Wrong("ServerLive: not live")
        self.oip.ModelStatistics(oip.ModelStatisticsRequest(name="transformer"), timeout=60)

    def wide_plan(self):
        """A spec that nobody used before, as wide as can be."""
        dim = 65536 - 2 * self.random.randrange(2000)
        answer = self.phasor.Encode(pb.EncodeRequest(item=self.encode_item(5, 1, dim)), timeout=60)
        same(answer.raw[0], encoded(5, 1, dim), "Encode of a wide row")

    def wrong(self):
        try:
            self.phasor.ApplyRoPE(pb.ApplyRoPERequest(item=self.rope_item(0, self.tensor(2)), raw=[b"short"]), timeout=60)
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE):
                raise
        else:
            raise Wrong("ApplyRoPE of five bytes was answered")

    def cancelled(self):
        tensor = self.tensor(3000)
        future = self.phasor.ApplyRoPE.future(pb.ApplyRoPERequest(item=self.rope_item(0, tensor), raw=[tensor.tobytes()]))
        future.cancel()

    def hurried(self):
        tensor = self.tensor(3000)
        with contextlib.suppress(grpc.RpcError):
            self.phasor.ApplyRoPE(pb.ApplyRoPERequest(item=self.rope_item(0, tensor), raw=[tensor.tobytes()]), timeout=self.random.random() / 100)
