# SPDX-License-Identifier: Apache-2.0
"""Runs Triton servers inside a `with` block: the one in nvidia-pytriton, with a backend in C++ or in Python, and PyTriton."""

import contextlib
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import tritonclient.grpc as grpcclient
from running import free_port
from tritonclient.utils import InferenceServerException

HERE = pathlib.Path(__file__).resolve().parent
START_S = 180
COMPILE = ["c++", "-std=c++20", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", f"-I{HERE.parents[1]}"]

CONFIG = """
name: "rope"
backend: "{backend}"
max_batch_size: 0
input [ {{ name: "POSITIONS" data_type: TYPE_INT64 dims: [ -1 ] }}, {{ name: "Q" data_type: TYPE_FP32 dims: [ -1, 32, 128 ] }} ]
output [ {{ name: "Q_OUT" data_type: TYPE_FP32 dims: [ -1, 32, 128 ] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
{parameters}
"""


def package():
    return pathlib.Path(importlib.util.find_spec("pytriton").origin).parent


@contextlib.contextmanager
def cpp_backend():
    """Yields the address. The model runs in a thread of the server."""
    with tempfile.TemporaryDirectory() as scratch:
        library = pathlib.Path(scratch) / "backends/rope/libtriton_rope.so"
        library.parent.mkdir(parents=True)
        if shutil.which(COMPILE[0]) is None:
            raise RuntimeError(f"{COMPILE[0]} is not installed")
        done = subprocess.run([*COMPILE, HERE / "rope_backend.cc", "-o", library], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError("rope_backend.cc does not compile:\n" + done.stderr[-3000:])
        with tritonserver(scratch, "rope", parameters={}) as address:
            yield address


@contextlib.contextmanager
def python_backend(library, stubs):
    """The same with a model that runs in a process of the backend, which shares memory with the server."""
    with tempfile.TemporaryDirectory() as scratch:
        backends, version = pathlib.Path(scratch) / "backends", pathlib.Path(scratch) / "models/rope/1"
        version.mkdir(parents=True)
        shutil.copy(HERE / "python_backend.py", version / "model.py")
        shutil.copytree(package() / "tritonserver/backends", backends)
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        stub = backends / "python/triton_python_backend_stub"
        shutil.copy(package() / f"tritonserver/python_backend_stubs/{python}/{stub.name}", stub)
        stub.chmod(0o755)
        with tritonserver(scratch, "python", parameters={"folder": HERE, "library": library, "stubs": stubs}) as address:
            yield address


def tritonserver(scratch, backend, parameters):
    """The server with the backends in scratch/backends, and the model there that `backend` runs."""
    backends, model = pathlib.Path(scratch) / "backends", pathlib.Path(scratch) / "models/rope"
    (model / "1").mkdir(parents=True, exist_ok=True)
    entries = (f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}' for key, value in parameters.items())
    (model / "config.pbtxt").write_text(CONFIG.format(backend=backend, parameters="\n".join(entries)), encoding="utf-8")
    port = free_port()
    command = [package() / "tritonserver/bin/tritonserver", f"--model-repository={model.parent}", f"--backend-directory={backends}"]
    command += ["--grpc-address=127.0.0.1", f"--grpc-port={port}", "--allow-http=false", "--allow-metrics=false"]
    return process(command, port)


def pytriton(library, stubs):
    """The same for PyTriton, with the model bound as its documentation says: in a process that its proxy model calls."""
    port = free_port()
    return process([sys.executable, HERE / "serve_pytriton.py", str(port), library, str(stubs)], port)


@contextlib.contextmanager
def process(command, port):
    site = package().parent
    libraries = [str(site / "nvidia_pytriton.libs"), os.environ.get("LD_LIBRARY_PATH", "")]
    environment = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(site)}
    environment["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            address = f"127.0.0.1:{port}"
            wait_until_ready(server, address, log)
            yield address
        finally:
            stop(server)


def wait_until_ready(server, address, log):
    deadline = time.monotonic() + START_S
    with grpcclient.InferenceServerClient(address) as client:
        while time.monotonic() < deadline and server.poll() is None:
            with contextlib.suppress(InferenceServerException):
                if client.is_model_ready("rope"):
                    return
            time.sleep(0.2)
    log.seek(0)
    raise RuntimeError("Triton did not start:\n" + log.read()[-3000:])


def stop(server):
    """Ends the server and its helper processes, which are in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(30)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
