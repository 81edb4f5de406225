# SPDX-License-Identifier: Apache-2.0
"""A server whose system calls fail when they are told to (fail.c), and calls of it with known answers."""

import ctypes
import mmap
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()
SERVER, CLI = BUILD / "server/phasor-server", BUILD / "client/cli/phasor"
SERVES_AGAIN_WITHIN_S = 30


class Fault(ctypes.Structure):  # as in fail.c
    _fields_ = [
        ("call", ctypes.c_char * 32), ("error", ctypes.c_int32), ("every", ctypes.c_int32), ("least_bytes", ctypes.c_int64),
        ("clock_offset_s", ctypes.c_int64), ("skip", ctypes.c_int64), ("calls", ctypes.c_int64), ("failed", ctypes.c_int64),
    ]  # fmt: skip


def run(*command, timeout=60):
    return subprocess.run([str(c) for c in command], capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False)


class Bench:
    """Files, the shim, and the right answers."""

    def __init__(self, folder):
        self.folder = folder
        self.shim = folder / "fail.so"
        built = run("cc", "-shared", "-fPIC", "-O1", "-w", "-o", self.shim, ROOT / "tests/faults/fail.c", "-ldl")
        if built.returncode != 0:
            raise RuntimeError(built.stderr.decode())
        self.input, self.table = folder / "in.npy", folder / "table.npy"
        self._write_npy(self.input, (2000, 8, 64))
        self._write_npy(self.table, (1000, 64))
        self.rope = ["rope", "--preset", "rope-interleaved", "--head-dim", "64", "--range", "5:2005", "--input", self.input]
        self.right = self._rotated()
        for name in ("old", "new"):
            made = run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                       "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")  # fmt: skip
            assert made.returncode == 0, made.stderr
        self.authorities = folder / "authorities.pem"
        self.authorities.write_bytes((folder / "old.pem").read_bytes() + (folder / "new.pem").read_bytes())

    @staticmethod
    def _write_npy(path, shape):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
        header += " " * (63 - (len(header) + 10) % 64) + "\n"
        count = 1
        for extent in shape:
            count *= extent
        numbers = (ctypes.c_float * count)(*(i % 1000 / 1000 for i in range(count)))
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(numbers))

    def _rotated(self, *options):
        out = self.folder / "out.npy"
        out.unlink(missing_ok=True)
        done = run(CLI, *self.rope, "--output", out, *options)
        return out.read_bytes() if done.returncode == 0 else None

    def rotates(self, address, timeout_s=5, *options):
        """Whether a call over a new connection succeeds; wrong numbers are an error of their own."""
        got = self._rotated("--server", address, "--timeout", str(timeout_s), *options)
        if got is not None and got != self.right:
            raise AssertionError("WRONG NUMBERS")
        return got is not None

    @staticmethod
    def load(address, *shape):
        """A process that makes calls until it is killed."""
        command = [CLI, "bench", "--server", address, "--preset", "rope-interleaved", "--head-dim", "64", "--duration", "60", *shape]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def faulty(self, fault=None):
        """(environment of a process with the shim, its fault)"""
        control = self.folder / "fault"
        control.unlink(missing_ok=True)  # a process that runs keeps the one that it has mapped
        control.write_bytes(bytes(fault or Fault(every=1)))
        with open(control, "r+b") as file:
            fault = Fault.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(Fault)))
        return {**os.environ, "LD_PRELOAD": str(self.shim), "PHASOR_FAULTS": str(control)}, fault


class DidNotStart(Exception):
    pass


def eventually(condition):
    deadline = time.monotonic() + SERVES_AGAIN_WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("waited in vain")
        time.sleep(0.02)


class Server:
    def __init__(self, bench, *options, limit=None, fault=None):
        self.bench = bench
        environment, self.fault = bench.faulty(fault)
        self.client_options = []
        tables = bench.folder / "tables"
        shutil.rmtree(tables, ignore_errors=True)
        tables.mkdir()
        self.log = open(bench.folder / "server.log", "w+b")
        self.process = subprocess.Popen(
            [SERVER, "--listen=127.0.0.1:0", f"--tables-dir={tables}", "--shared-memory", f"--lease-socket={bench.folder / 'lease.sock'}", "--threads=2", *options],
            env=environment, stdout=self.log, stderr=self.log, preexec_fn=limit)  # fmt: skip
        eventually(lambda: self.process.poll() is not None or b'"event":"serving"' in self.text())
        if not (found := re.search(rb"127\.0\.0\.1:[1-9]\d*", self.text())):
            raise DidNotStart(self.process.wait(30), self.text().decode())
        self.address = found[0].decode()

    def text(self):
        return pathlib.Path(self.log.name).read_bytes()

    def alive(self):
        return self.process.poll() is None

    def serves_again(self):
        deadline = time.monotonic() + SERVES_AGAIN_WITHIN_S
        while time.monotonic() < deadline and self.alive():
            if self.bench.rotates(self.address, 5, *self.client_options):
                return True
        return False

    def end(self):
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "did not stop"
