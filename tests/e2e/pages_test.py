# SPDX-License-Identifier: Apache-2.0
"""Compares FLOAT8 with ml_dtypes for every 16-bit value, and paged caches with a numpy model of
vLLM's reshape_and_cache_flash. Uses stubs generated from our protocol, with caches in the message
and in leased memory. $PHASOR_BUILD is the build folder."""

import fcntl
import importlib
import mmap
import os
import pathlib
import socket
import sys
import tempfile
import unittest

import grpc
import ml_dtypes
import numpy as np
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/accept")]
import running

SERVER = pathlib.Path(os.environ["PHASOR_BUILD"]) / "server/phasor-server"
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
LARGEST = {E4M3: np.float32(448), E5M2: np.float32(57344)}
NAMES = {np.float32: "FLOAT32", np.float16: "FLOAT16", ml_dtypes.bfloat16: "BFLOAT16", E4M3: "FLOAT8_E4M3", E5M2: "FLOAT8_E5M2",
         np.int32: "INT32", np.int64: "INT64"}
HALVES = (np.float16, ml_dtypes.bfloat16)


def stubs(folder):
    """The modules of our protocol."""
    files = sorted(str(p.relative_to(ROOT / "proto")) for p in (ROOT / "proto/phasor/v1").glob("*.proto"))
    arguments = ["protoc", f"-I{ROOT / 'proto'}", f"--python_out={folder}", f"--grpc_python_out={folder}", *files]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc failed")
    sys.path.insert(0, folder)
    names = ("position_embedding_service_pb2", "position_embedding_service_pb2_grpc", "server_info_pb2", "tensor_pb2")
    return [importlib.import_module(f"phasor.v1.{name}") for name in names]


def float8(values, kind, inv_scale):
    """What NUMERICS promises, by ml_dtypes' rounding: bytes of values * inv_scale, saturated; NaN is 0x7F."""
    scaled = values.astype(np.float32) * np.float32(inv_scale)
    rounded = np.clip(scaled, -LARGEST[kind], LARGEST[kind]).astype(kind).view(np.uint8)
    return np.where(np.isnan(scaled), np.uint8(0x7F), rounded)


def reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping):
    """vLLM's kernel, token by token; caches are [blocks, block_size, heads, head_dim]."""
    block_size = key_cache.shape[1]
    for token, slot in enumerate(slot_mapping):
        if slot < 0:
            continue
        block, offset = divmod(int(slot), block_size)
        key_cache[block, offset] = key[token]
        value_cache[block, offset] = value[token]


class PagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.v1, grpc_module, cls.info, cls.tensors = stubs(folder)
        lease = f"--lease-socket={folder}/lease.sock"
        address = cls.enterClassContext(running.server([SERVER, lease, "--threads", "2"]))
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        channel = cls.enterClassContext(grpc.insecure_channel(address, options=options))
        cls.stub = grpc_module.PositionEmbeddingServiceStub(channel)
        cls.random = np.random.default_rng(5)

    def spec_of(self, array, request=None, region=None):
        """The TensorSpec of an array, whose bytes go into the request unless they are in a region."""
        spec = self.tensors.TensorSpec(shape=array.shape)
        spec.dtype = getattr(self.tensors, "DTYPE_" + NAMES[array.dtype.type])
        if region is not None:
            spec.region.region, spec.region.offset_bytes = region
        else:
            request.raw.append(array.tobytes())
        return spec

    def request(self, tokens, rotary_dim, *tensors, first=0):
        request = self.v1.ApplyRoPERequest()
        item = request.item
        item.spec.preset = "rope-half-split"
        item.spec.rotary_dim = rotary_dim
        item.direction, item.layout = self.v1.DIRECTION_FORWARD, self.v1.ROPE_LAYOUT_TOKENS_HEADS
        item.positions.range.integer.start = first
        item.positions.range.integer.count = tokens
        for tensor in tensors:
            item.tensors.add().tensor.CopyFrom(self.spec_of(tensor, request))
        return request

    def exact(self, x, rotary_dim, first=0):
        """The f32 rotation of a widened input."""
        answer = self.stub.ApplyRoPE(self.request(x.shape[0], rotary_dim, x.astype(np.float32), first=first))
        return np.frombuffer(answer.raw[0], np.float32).reshape(x.shape)

    def to_float8(self, x, rotary_dim, kind, inv_scale, first=0):
        request = self.request(x.shape[0], rotary_dim, x, first=first)
        request.item.tensors[0].output_dtype = getattr(self.tensors, "DTYPE_" + NAMES[kind])
        request.item.tensors[0].inv_scale = inv_scale
        answer = self.stub.ApplyRoPE(request)
        self.assertEqual(list(answer.result.tensors[0].shape), list(x.shape))
        return np.frombuffer(answer.raw[0], np.uint8).reshape(x.shape)

    def halves(self, kind, *shape):
        return self.random.standard_normal(shape, np.float32).astype(kind)

    # --- FLOAT8 ---

    def test_every_16_bit_value_is_rounded_as_by_ml_dtypes(self):
        """Beside the two lanes that turn: all values, at scales that under- and overflow."""
        for kind in HALVES:
            values = np.arange(65536, dtype=np.uint16).view(kind).reshape(1024, 1, 64)
            x = np.concatenate([np.zeros((1024, 1, 2), kind), values], -1)
            for to in (E4M3, E5M2):
                for inv_scale in (1.0, 0.5, 1 / 3, 17.25, 3e-5, 4096.0, 1e30, 1e-40):
                    got = self.to_float8(x, 2, to, inv_scale)
                    with np.errstate(over="ignore", invalid="ignore"):
                        wanted = float8(x, to, inv_scale)
                    np.testing.assert_array_equal(got[..., 2:], wanted[..., 2:], f"{NAMES[kind]} {NAMES[to]} {inv_scale}")

    def test_rotations_are_rounded_once_from_f32(self):
        for kind in HALVES:
            x = self.halves(kind, 77, 3, 128)
            for rotary_dim in (128, 64):
                wanted = self.exact(x, rotary_dim, first=131000)
                for to in (E4M3, E5M2):
                    got = self.to_float8(x, rotary_dim, to, 100.0, first=131000)
                    np.testing.assert_array_equal(got, float8(wanted, to, 100.0))

    # --- pages ---

    def pages(self, kind, to, slots_kind=np.int64):
        """Keys, values, caches with something in them, and slots, two of them none."""
        keys, values = self.halves(kind, 50, 2, 64), self.halves(kind, 50, 2, 64)
        caches = [self.random.integers(0, 100, (20, 8, 2, 64 * np.dtype(to).itemsize), np.uint8) for _ in range(2)]
        slots = self.random.permutation(160)[:50].astype(slots_kind)
        slots[[3, 40]] = -1
        return keys, values, [cache.view(to) for cache in caches], slots

    def modelled(self, keys, values, caches, slots, inv_scale):
        """The caches as they should be."""
        to = caches[0].dtype.type
        rotated = self.exact(keys, 64, first=7)
        if to in LARGEST:
            rows = [float8(rotated, to, inv_scale), float8(values, to, inv_scale)]
        else:
            rows = [rotated.astype(to), values]
        bits = np.uint8 if to in LARGEST else np.uint16
        wanted = [cache.copy().view(bits) for cache in caches]
        reshape_and_cache_flash(rows[0].view(bits), rows[1].view(bits), *wanted, slots)
        return wanted

    def paged_request(self, keys, values, slots, inv_scale):
        request = self.request(50, 64, keys, first=7)
        request.item.paged_cache.values.CopyFrom(self.spec_of(values, request))
        if inv_scale is not None:
            request.item.tensors[0].inv_scale = inv_scale
            request.item.paged_cache.value_inv_scale = inv_scale
        return request

    def cases(self):
        for kind in HALVES:
            for to in (kind, E4M3, E5M2):
                yield kind, to, (None if to is kind else 40.0)

    def test_inline_caches_come_back_as_vllm_writes_them(self):
        for kind, to, inv_scale in self.cases():
            keys, values, caches, slots = self.pages(kind, to, np.int32)
            request = self.paged_request(keys, values, slots, inv_scale)
            paged = request.item.paged_cache
            paged.key_cache.CopyFrom(self.spec_of(caches[0], request))
            paged.value_cache.CopyFrom(self.spec_of(caches[1], request))
            paged.slot_mapping.CopyFrom(self.spec_of(slots, request))
            answer = self.stub.ApplyRoPE(request)
            self.assertEqual([list(t.shape) for t in answer.result.tensors], [[20, 8, 2, 64]] * 2)
            for raw, wanted in zip(answer.raw, self.modelled(keys, values, caches, slots, inv_scale)):
                np.testing.assert_array_equal(np.frombuffer(raw, wanted.dtype).reshape(wanted.shape), wanted)

    def lease(self, size):
        memory = os.memfd_create("pages", os.MFD_ALLOW_SEALING)
        os.posix_fallocate(memory, 0, size)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        data = mmap.mmap(memory, size)
        connection = self.enterContext(socket.socket(socket.AF_UNIX))
        connection.connect(self.stub.GetServerInfo(self.info.GetServerInfoRequest()).lease_socket)
        socket.send_fds(connection, [b"LEASE\n"], [memory])
        answer = connection.recv(200).split()
        os.close(memory)
        self.assertEqual(answer[0], b"OK", answer)
        return data, answer[1].decode()

    def test_leased_caches_are_written_as_by_vllm(self):
        for kind, to, inv_scale in self.cases():
            keys, values, caches, slots = self.pages(kind, to)
            size = caches[0].nbytes
            data, token = self.lease(2 * size)
            data[:] = caches[0].tobytes() + caches[1].tobytes()
            request = self.paged_request(keys, values, slots, inv_scale)
            paged = request.item.paged_cache
            paged.key_cache.CopyFrom(self.spec_of(caches[0], region=(token, 0)))
            paged.value_cache.CopyFrom(self.spec_of(caches[1], region=(token, size)))
            paged.slot_mapping.CopyFrom(self.spec_of(slots, request))
            answer = self.stub.ApplyRoPE(request)
            self.assertEqual(list(answer.raw), [])
            self.assertEqual(answer.result.tensors[1].region.offset_bytes, size)
            wanted = b"".join(w.tobytes() for w in self.modelled(keys, values, caches, slots, inv_scale))
            self.assertEqual(data[:], wanted)
            slots[9] = 160
            request.raw[-1] = slots.tobytes()
            with self.assertRaises(grpc.RpcError) as raised:
                self.stub.ApplyRoPE(request)
            self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn("item.paged_cache.slot_mapping[9]: slot 160; must be in [-1, 160)", raised.exception.details())
            self.assertEqual(data[:], wanted, "nothing was written")


if __name__ == "__main__":
    unittest.main()
