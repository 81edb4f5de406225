# SPDX-License-Identifier: Apache-2.0
"""Tests Triton's client and plain stubs with a running server: every call, every type, shared
memory, streams, errors, and behaviour that clients rely on although it is not specified. Compares
with sines and cosines in float64. $PHASOR_BUILD is the build folder."""

import base64
import functools
import os
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import grpc
import ml_dtypes
import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, shared_memory

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/accept")]
import protocol
import running

SERVER = pathlib.Path(os.environ["PHASOR_BUILD"]) / "server/phasor-server"
# Largest difference from float64 values of magnitude up to 1.5: half a unit in the last place, and a little.
BOUND = {"FP64": 1e-15, "FP32": 1.2e-7, "FP16": 1e-3, "BF16": 8e-3}
NUMPY = {"FP64": np.float64, "FP32": np.float32, "FP16": np.float16, "INT32": np.int32, "INT64": np.int64}


def tensor(name, values, datatype=None):
    datatype = datatype or {t: d for d, t in NUMPY.items()}[values.dtype.type]
    made = grpcclient.InferInput(name, list(values.shape), datatype)
    if datatype != "BF16":
        return made.set_data_from_numpy(values)
    made._raw_content = values.astype(ml_dtypes.bfloat16).tobytes()  # tritonclient's own conversion cuts off
    return made


def values_of(result, name):
    output = result.get_output(name)
    if output.datatype != "BF16":
        return result.as_numpy(name)
    response = result.get_response()
    raw = {o.name: r for o, r in zip(response.outputs, response.raw_output_contents, strict=True)}[name]
    return np.frombuffer(raw, ml_dtypes.bfloat16).reshape(tuple(output.shape)).astype(np.float32)


def rows(positions, dim):
    """Sine and cosine interleaved, in float64."""
    angles = np.asarray(positions, np.float64)[..., None] * 10000.0 ** -(np.arange(dim // 2) / (dim // 2))
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(*np.shape(positions), dim)


def rotated(x, positions):
    """Lane j with lane j + half, in float64."""
    half = x.shape[-1] // 2
    angles = (np.asarray(positions, np.float64)[:, None] * 10000.0 ** -(np.arange(half) / half))[:, None, :]
    a, b = x[..., :half].astype(np.float64), x[..., half:].astype(np.float64)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.address = cls.enterClassContext(running.server([SERVER, "--shared-memory", "--threads", "2"]))
        cls.client = cls.enterClassContext(grpcclient.InferenceServerClient(cls.address))
        channel = cls.enterClassContext(grpc.insecure_channel(cls.address))
        cls.stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def encode(self, positions, client=None, **arguments):
        arguments.setdefault("parameters", {"dim": 64})
        return (client or self.client).infer("transformer", [tensor("POSITIONS", np.asarray(positions))], **arguments)

    def assert_close(self, got, wanted, datatype="FP32", furthest=0):
        """`furthest`: the last position, at which float64 angles are off by their own rounding."""
        self.assertEqual(got.shape, wanted.shape)
        worst = float(np.max(np.abs(got.astype(np.float64) - wanted)))
        self.assertLessEqual(worst, BOUND[datatype] * max(1.0, float(np.max(np.abs(wanted)))) + furthest * 3e-16)

    def assert_fails(self, status, part, call, *arguments, **keywords):
        with self.assertRaises(InferenceServerException) as raised:
            call(*arguments, **keywords)
        self.assertEqual(raised.exception.status(), f"StatusCode.{status}")
        self.assertIn(part, raised.exception.message())

    # --- calls ---

    def test_the_protocol_is_that_of_the_client(self):
        wrong, missing = protocol.differences(ROOT)
        self.assertEqual(wrong, [])
        self.assertEqual(missing, [])

    def test_server_and_models_are_described(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("llama-3.1-8b"))
        self.assertFalse(self.client.is_model_ready("bert"))
        self.assertIn("statistics", self.client.get_server_metadata().extensions)
        names = [model.name for model in self.client.get_model_repository_index().models]
        self.assertGreaterEqual(len(names), 100)
        for name in names:
            metadata, config = self.client.get_model_metadata(name), self.client.get_model_config(name).config
            known = {t.name for t in list(metadata.inputs) + list(metadata.outputs)}
            self.assertLessEqual({t.name for t in list(config.input) + list(config.output)}, known, name)
            self.assertEqual((config.name, config.max_batch_size, list(metadata.versions)), (name, 0, ["1"]))

    def test_what_is_not_built_says_so(self):
        for call, arguments in [
            (self.client.load_model, ["llama-3"]),
            (self.client.unload_model, ["llama-3"]),
            (self.client.update_trace_settings, [None, {"trace_rate": "2"}]),
            (self.client.get_log_settings, []),
        ]:
            self.assert_fails("UNIMPLEMENTED", "not implemented", call, *arguments)

    def test_traces_are_off_without_a_collector(self):
        settings = {name: list(s.value) for name, s in self.client.get_trace_settings().settings.items()}
        self.assertEqual(settings["trace_level"], ["OFF"])
        self.assertEqual(settings["trace_mode"], ["opentelemetry"])

    def test_statistics_grow_with_every_inference(self):
        def look():
            stats = self.client.get_inference_statistics("ddpm-timestep").model_stats[0]
            steps = stats.inference_stats
            counts = [s.count for s in (steps.queue, steps.compute_input, steps.compute_infer, steps.compute_output)]
            return int(stats.version), stats.inference_count, steps.success.count, counts, steps.success.ns

        before = look()
        for _ in range(3):
            self.client.infer("ddpm-timestep", [tensor("POSITIONS", np.array([1, 2]))], parameters={"dim": 8})
        after = look()
        self.assertEqual(after[0], 1)
        self.assertEqual([after[1] - before[1], after[2] - before[2]], [3, 3])
        self.assertEqual([a - b for a, b in zip(after[3], before[3])], [3] * 4)
        self.assertGreater(after[4], before[4])

    # --- types ---

    def test_positions_of_every_type_encode_alike(self):
        wanted = rows([0, 1, 77], 64)
        for datatype in ("INT32", "INT64", "FP32", "FP64"):
            result = self.encode(np.array([0, 1, 77], NUMPY[datatype]))
            self.assert_close(result.as_numpy("ENCODING"), wanted)

    def test_encodings_come_in_every_type_and_batch(self):
        positions = np.array([[0, 1, 5], [7, 900, 131072]])
        for datatype, bound in BOUND.items():
            result = self.encode(positions, parameters={"dim": 64, "output_dtype": datatype})
            self.assertEqual(result.get_output("ENCODING").datatype, datatype)
            got = values_of(result, "ENCODING")
            self.assertEqual(got.shape, (2, 3, 64))
            # float64 itself is off by 1e-16 of the angle.
            self.assertLessEqual(np.max(np.abs(got.astype(np.float64) - rows(positions, 64))), max(bound, 2e-11))

    def test_embeddings_are_added_in_every_type(self):
        for datatype in BOUND:
            embeddings = np.full((3, 64), 0.25, NUMPY.get(datatype, np.float32))
            inputs = [tensor("POSITIONS", np.array([1, 2, 3])), tensor("EMBEDDINGS", embeddings, datatype)]
            result = self.client.infer("transformer", inputs, parameters={"dim": 64})
            self.assert_close(values_of(result, "ENCODING"), rows([1, 2, 3], 64) + 0.25, datatype)

    def test_queries_and_keys_rotate_in_every_type_and_back(self):
        positions = np.array([0, 3, 100, 4095])
        grid = np.linspace(-1, 1, 4 * 3 * 16).reshape(4, 3, 16)
        for datatype in BOUND:
            q = grid.astype(NUMPY.get(datatype, np.float32))
            if datatype == "BF16":
                q = q.astype(ml_dtypes.bfloat16).astype(np.float32)
            inputs = [tensor("POSITIONS", positions), tensor("Q", q, datatype), tensor("K", q[:, :1], datatype)]
            result = self.client.infer("rope-half-split", inputs)
            self.assert_close(values_of(result, "Q_OUT"), rotated(q, positions), datatype, furthest=4095)
            self.assert_close(values_of(result, "K_OUT"), rotated(q[:, :1], positions), datatype, furthest=4095)
            turned = tensor("Q", values_of(result, "Q_OUT"), datatype)
            back = self.client.infer("rope-half-split", [inputs[0], turned], parameters={"direction": "inverse"})
            self.assertLessEqual(np.max(np.abs(values_of(back, "Q_OUT").astype(np.float64) - q)), 3 * BOUND[datatype])

    def test_heads_may_come_before_tokens(self):
        positions, q = np.arange(5), np.linspace(-1, 1, 5 * 2 * 8, dtype=np.float32).reshape(5, 2, 8)
        straight = self.client.infer("rope-half-split", [tensor("POSITIONS", positions), tensor("Q", q)])
        swapped = self.client.infer(
            "rope-half-split",
            [tensor("POSITIONS", positions), tensor("Q", np.ascontiguousarray(q.swapaxes(0, 1)))],
            parameters={"layout": "heads_tokens"},
        )
        np.testing.assert_array_equal(swapped.as_numpy("Q_OUT").swapaxes(0, 1), straight.as_numpy("Q_OUT"))

    def test_biases_are_slopes_times_distances(self):
        queries, keys = np.array([3, 4]), np.arange(5)
        inputs = [tensor("QUERY_POSITIONS", queries), tensor("KEY_POSITIONS", keys)]
        bias = self.client.infer("alibi", inputs, parameters={"heads": 8}).as_numpy("BIAS")
        wanted = -(2.0 ** -np.arange(1, 9))[:, None, None] * np.abs(queries[:, None] - keys[None, :])
        np.testing.assert_array_equal(bias, wanted.astype(np.float32))

    def test_numbers_of_the_message_are_as_good_as_bytes(self):
        request = service_pb2.ModelInferRequest(model_name="transformer")
        request.parameters["dim"].int64_param = 64
        positions = request.inputs.add(name="POSITIONS", datatype="INT32", shape=[2])
        positions.contents.int_contents.extend([5, 6])
        response = self.stub.ModelInfer(request)
        self.assertEqual(response.raw_output_contents[0], self.encode([5, 6]).get_response().raw_output_contents[0])

    # --- shared memory ---

    def region(self, name, size):
        handle = shared_memory.create_shared_memory_region(name, f"/phasor_oip_{os.getpid()}_{name}", size)
        self.addCleanup(shared_memory.destroy_shared_memory_region, handle)
        self.client.register_system_shared_memory(name, handle._shm_key, size)
        self.addCleanup(self.client.unregister_system_shared_memory, name)
        return handle

    def test_shared_memory_goes_in_and_out(self):
        """One region for input, at an offset, and one for output, whose size is a capacity."""
        positions = np.array([1, 2, 3])
        into, out = self.region("into", 4096), self.region("out", 4096)
        shared_memory.set_shared_memory_region(into, [positions], offset=40)
        source = grpcclient.InferInput("POSITIONS", [3], "INT64")
        source.set_shared_memory("into", positions.nbytes, offset=40)
        target = grpcclient.InferRequestedOutput("ENCODING")
        target.set_shared_memory("out", 2000, offset=64)
        result = self.client.infer("transformer", [source], outputs=[target], parameters={"dim": 64})
        # Trap: C++ clients index the raw entries of all outputs, also of those in shared memory.
        self.assertEqual(list(result.get_response().raw_output_contents), [b""])
        got = shared_memory.get_contents_as_numpy(out, np.float32, [3, 64], offset=64)
        np.testing.assert_array_equal(got, self.encode(positions).as_numpy("ENCODING"))
        status = self.client.get_system_shared_memory_status()
        self.assertEqual(status.regions["into"].byte_size, 4096)

    def test_shared_memory_and_bytes_mix_in_one_request(self):
        """Only inputs that are not in shared memory have a raw entry."""
        q = np.linspace(-1, 1, 2 * 1 * 8, dtype=np.float32).reshape(2, 1, 8)
        handle = self.region("q", q.nbytes)
        shared_memory.set_shared_memory_region(handle, [q])
        shared = grpcclient.InferInput("Q", [2, 1, 8], "FP32")
        shared.set_shared_memory("q", q.nbytes)
        inputs = [tensor("POSITIONS", np.array([4, 5])), shared, tensor("K", q)]
        result = self.client.infer("rope-half-split", inputs)
        np.testing.assert_array_equal(result.as_numpy("Q_OUT"), result.as_numpy("K_OUT"))

    def test_shared_memory_is_checked(self):
        self.region("small", 64)
        self.assert_fails("ALREADY_EXISTS", "already in manager", self.client.register_system_shared_memory, "small", "/x", 1)
        source = grpcclient.InferInput("POSITIONS", [3], "INT64")
        source.set_shared_memory("small", 24, offset=48)
        infer = functools.partial(self.client.infer, "transformer", [source], parameters={"dim": 8})
        self.assert_fails("INVALID_ARGUMENT", "inputs[0]", infer)
        source.set_shared_memory("nobody", 24)
        self.assert_fails("NOT_FOUND", "nobody", infer)
        target = grpcclient.InferRequestedOutput("ENCODING")
        target.set_shared_memory("small", 64)
        self.assert_fails("INVALID_ARGUMENT", "must be at least 768 bytes", self.encode, [1, 2, 3], outputs=[target])
        self.assert_fails("NOT_FOUND", "cannot be opened", self.client.register_system_shared_memory, "n", "/phasor_none", 1)
        with grpcclient.InferenceServerClient(self.address, channel_args=[("grpc.use_local_subchannel_pool", 1)]) as other:
            other.unregister_system_shared_memory()  # all of its own: none
        self.assertIn("small", self.client.get_system_shared_memory_status().regions)

    def test_memory_that_shrinks_does_not_end_the_server(self):
        handle = self.region("shrinks", 8192)
        source = grpcclient.InferInput("POSITIONS", [1024], "INT64")
        source.set_shared_memory("shrinks", 8192)
        os.truncate(f"/dev/shm{handle._shm_key}", 0)
        self.assert_fails("INVALID_ARGUMENT", "shrunk", self.client.infer, "transformer", [source], parameters={"dim": 8})
        self.assertTrue(self.client.is_server_live())

    def test_device_handles_arrive_as_64_bytes(self):
        """The client takes base64 and sends the bytes."""
        handle = base64.b64encode(bytes(64))
        self.assert_fails("FAILED_PRECONDITION", "no device", self.client.register_cuda_shared_memory, "d", handle, 0, 64)
        short = base64.b64encode(bytes(63))
        self.assert_fails("INVALID_ARGUMENT", "raw_handle", self.client.register_cuda_shared_memory, "d", short, 0, 64)
        self.assertEqual(len(self.client.get_cuda_shared_memory_status().regions), 0)
        self.client.unregister_cuda_shared_memory()

    # --- streams ---

    def test_a_stream_answers_in_order_and_survives_errors(self):
        answers = queue.Queue()
        with grpcclient.InferenceServerClient(self.address) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            for i in range(10):
                model = "bert" if i == 4 else "transformer"
                inputs = [tensor("POSITIONS", np.array([i]))]
                client.async_stream_infer(
                    model, inputs, request_id=str(i), parameters={"dim": 64}, enable_empty_final_response=True
                )
            for i in range(10):
                result, error = answers.get(timeout=60)
                if i == 4:
                    self.assertIn("'bert' is not found", error.message())
                    continue
                self.assertIsNone(error)
                response = result.get_response()
                self.assertEqual(response.id, str(i))
                self.assertTrue(response.parameters["triton_final_response"].bool_param)
                self.assert_close(result.as_numpy("ENCODING"), rows([i], 64))
            client.stop_stream()

    # --- errors ---

    def test_errors_have_codes_and_name_the_field(self):
        one = [tensor("POSITIONS", np.array([1]))]
        q = tensor("Q", np.ones((1, 1, 8), np.float32))
        infer = self.client.infer
        self.assert_fails("NOT_FOUND", "Request for unknown model: 'bert' is not found", infer, "bert", one)
        self.assert_fails("NOT_FOUND", "version 3", infer, "transformer", one, model_version="3")
        self.assert_fails("INVALID_ARGUMENT", "parameters.dim", infer, "transformer", one)
        self.assert_fails("INVALID_ARGUMENT", "parameters.dimm", infer, "transformer", one, parameters={"dimm": 3})
        self.assert_fails("INVALID_ARGUMENT", "inputs: Q is missing", infer, "llama-3", one)
        self.assert_fails("INVALID_ARGUMENT", "inputs[1].name: 'Q'", infer, "transformer", one + [q], parameters={"dim": 8})
        self.assert_fails("INVALID_ARGUMENT", "inputs[1].shape[2]: 8; must be", infer, "llama-3.1-8b", one + [q])
        self.assert_fails("INVALID_ARGUMENT", "inputs[1].name: 'POSITIONS' twice", infer, "llama-3", one + one)
        unknown = grpcclient.InferRequestedOutput("K_OUT")
        self.assert_fails("INVALID_ARGUMENT", "outputs[0].name: 'K_OUT'", infer, "rope-half-split", one + [q], outputs=[unknown])
        wrong = grpcclient.InferInput("POSITIONS", [1], "BOOL").set_data_from_numpy(np.array([True]))
        self.assert_fails("INVALID_ARGUMENT", "inputs[0].datatype: 'BOOL'", infer, "transformer", [wrong])
        self.assert_fails("UNIMPLEMENTED", "", infer, "transformer", one, compression_algorithm="gzip")

    # --- what clients rely on ---

    def test_outputs_come_in_the_order_that_was_asked_for(self):
        """The client finds an output's bytes by its place in the list."""
        q, k = np.ones((2, 3, 8), np.float32), np.full((2, 1, 8), 2, np.float32)
        outputs = [grpcclient.InferRequestedOutput("K_OUT"), grpcclient.InferRequestedOutput("Q_OUT")]
        result = self.client.infer(
            "rope-half-split", [tensor("POSITIONS", np.array([0, 0])), tensor("Q", q), tensor("K", k)], outputs=outputs
        )
        self.assertEqual([o.name for o in result.get_response().outputs], ["K_OUT", "Q_OUT"])
        np.testing.assert_array_equal(result.as_numpy("Q_OUT"), q)
        np.testing.assert_array_equal(result.as_numpy("K_OUT"), k)

    def test_outputs_without_their_optional_input_are_left_out(self):
        """perf_analyzer names every output of the model."""
        q = np.ones((1, 3, 8), np.float32)
        outputs = [grpcclient.InferRequestedOutput("K_OUT"), grpcclient.InferRequestedOutput("Q_OUT")]
        result = self.client.infer("rope-half-split", [tensor("POSITIONS", np.array([0])), tensor("Q", q)], outputs=outputs)
        self.assertEqual([o.name for o in result.get_response().outputs], ["Q_OUT"])
        self.assertIsNone(result.as_numpy("K_OUT"))
        np.testing.assert_array_equal(result.as_numpy("Q_OUT"), q)

    def test_every_output_has_a_raw_entry_and_no_numbers(self):
        response = self.encode(np.zeros((0,), np.int64)).get_response()
        self.assertEqual(list(response.raw_output_contents), [b""])
        self.assertFalse(response.outputs[0].HasField("contents"))
        self.assertEqual(list(response.outputs[0].shape), [0, 64])

    def test_parameters_of_the_clients_are_accepted_and_other_reserved_ones_not(self):
        self.encode([1], priority=7, timeout=60_000_000, request_id="x")
        request = service_pb2.ModelInferRequest(model_name="transformer")
        request.parameters["dim"].int64_param = 8
        request.parameters["triton_enable_empty_final_response"].bool_param = False
        request.parameters["priority"].int64_param = 0
        request.inputs.add(name="POSITIONS", datatype="INT64", shape=[1])
        request.raw_input_contents.append(bytes(8))
        self.stub.ModelInfer(request)
        request.parameters["triton_other"].bool_param = True
        with self.assertRaises(grpc.RpcError) as raised:
            self.stub.ModelInfer(request)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

    def test_requests_of_any_size_come_back_on_one_connection(self):
        """Many callers share a connection, and tensors are larger than gRPC's default of 4 MiB."""
        answers = queue.Queue()
        q = np.linspace(-1, 1, 1024 * 16 * 128, dtype=np.float32).reshape(1024, 16, 128)
        inputs = [tensor("POSITIONS", np.arange(1024)), tensor("Q", q)]
        for _ in range(6):
            self.client.async_infer("rope-half-split", inputs, lambda result, error: answers.put((result, error)))
        first = None
        for _ in range(6):
            result, error = answers.get(timeout=60)
            self.assertIsNone(error)
            raw = result.get_response().raw_output_contents[0]
            first = first or raw
            self.assertEqual(raw, first)
        wanted = rotated(q[-1:], [1023])
        self.assert_close(np.frombuffer(first, np.float32).reshape(q.shape)[-1:], wanted)

    # --- examples ---

    def example(self, name, path=""):
        command = [sys.executable, ROOT / "client/python" / name, self.address]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_example_with_tritonclient_runs(self):
        out = self.example("with_tritonclient.py")
        self.assertIn("ENCODING (4, 128)", out)
        self.assertIn("Q_OUT (5, 4, 128) K_OUT (5, 1, 128)", out)

    def test_the_example_with_plain_stubs_runs(self):
        with tempfile.TemporaryDirectory() as stubs:
            protos = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "proto/inference").glob("*.proto"))
            generate = [sys.executable, "-m", "grpc_tools.protoc", "-I", "proto", f"--python_out={stubs}", f"--grpc_python_out={stubs}"]
            subprocess.run([*generate, *protos], cwd=ROOT, check=True, timeout=60)
            self.assertIn("ENCODING [4, 128]", self.example("with_grpcio.py", stubs))


ENCODERS = """
encoders {{ name: "rows" spec {{ preset: "transformer" dim: {dim} }} }}
encoders {{ name: "{heads}" spec {{ preset: "rope-half-split" head_dim: 16 }} }}
"""


class EncodersTest(unittest.TestCase):
    """Encoders of the configuration are models beside the presets, and a reload changes them."""

    def setUp(self):
        self.config = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "phasor.txtpb"
        self.configure(dim=8, heads="heads")
        command = [SERVER, "--config", self.config]
        address, self.process = self.enterContext(running.server_process(command))
        self.client = self.enterContext(grpcclient.InferenceServerClient(address))

    def configure(self, **values):
        new = self.config.with_suffix(".new")
        new.write_text(ENCODERS.format(**values), encoding="utf-8")
        new.rename(self.config)

    def reload(self, ready, **values):
        """SIGHUP, then until the model `ready` is there."""
        self.configure(**values)
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while not self.client.is_model_ready(ready):
            self.assertLess(time.monotonic(), deadline, "the reload did not happen")

    def rows(self, **arguments):
        return self.client.infer("rows", [tensor("POSITIONS", np.array([1, 2]))], **arguments).as_numpy("ENCODING")

    def names(self):
        return [model.name for model in self.client.get_model_repository_index().models]

    def test_encoders_are_models(self):
        self.assertLessEqual({"rows", "heads", "transformer"}, set(self.names()))
        self.assertTrue(self.client.is_model_ready("rows"))
        metadata, config = self.client.get_model_metadata("rows"), self.client.get_model_config("rows").config
        self.assertEqual(list(metadata.outputs[0].shape), [-1, 8])
        self.assertEqual(list(config.output[0].dims), [-1, 8])
        wanted = rows([1, 2], 8)
        self.assertLessEqual(np.max(np.abs(self.rows() - wanted)), BOUND["FP32"])
        of_preset = self.client.infer("transformer", [tensor("POSITIONS", np.array([1, 2]))], parameters={"dim": 8})
        np.testing.assert_array_equal(self.rows(), of_preset.as_numpy("ENCODING"))
        self.assertEqual(self.rows(parameters={"dim": 4}).shape, (2, 4))  # as with a preset
        q = np.linspace(-1, 1, 2 * 3 * 16, dtype=np.float32).reshape(2, 3, 16)
        turned = self.client.infer("heads", [tensor("POSITIONS", np.array([0, 9])), tensor("Q", q)]).as_numpy("Q_OUT")
        self.assertLessEqual(np.max(np.abs(turned - rotated(q, [0, 9]))), BOUND["FP32"])
        stats = self.client.get_inference_statistics("rows").model_stats[0]
        self.assertEqual((stats.name, stats.inference_count), ("rows", 3))

    def test_a_reload_changes_adds_and_removes_models(self):
        self.assertEqual(self.rows().shape, (2, 8))
        self.reload("turns", dim=32, heads="turns")
        self.assertEqual(self.rows().shape, (2, 32))
        self.assertEqual(list(self.client.get_model_metadata("rows").outputs[0].shape), [-1, 32])
        self.assertEqual(self.client.get_inference_statistics("rows").model_stats[0].inference_count, 2)
        self.assertIn("turns", self.names())
        self.assertNotIn("heads", self.names())
        self.assertFalse(self.client.is_model_ready("heads"))
        with self.assertRaises(InferenceServerException) as raised:
            self.client.infer("heads", [tensor("POSITIONS", np.array([1]))])
        self.assertEqual(raised.exception.status(), "StatusCode.NOT_FOUND")


if __name__ == "__main__":
    unittest.main()
