# SPDX-License-Identifier: Apache-2.0
"""faults_test.py BUILD: makes system calls of a real server fail while it is called, stops processes, moves the clock, limits its
memory. During a fault a call may fail, but it never gets wrong numbers; after the fault the server serves again, with the same
process. Prints the rows of docs/reliability.md."""

import contextlib
import ctypes
import errno
import mmap
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/accept"))
sys.dont_write_bytecode = True

BUILD = pathlib.Path(sys.argv[1]).resolve()
SERVER, CLI = BUILD / "server/phasor-server", BUILD / "client/cli/phasor"
TRIES = 6
MOST_REPEATS = 100_000  # of a system call that fails, in half a minute; a loop without a pause makes millions
SERVES_AGAIN_WITHIN_S = 30


class Fault(ctypes.Structure):  # as in fail.c
    _fields_ = [
        ("call", ctypes.c_char * 32), ("error", ctypes.c_int32), ("every", ctypes.c_int32), ("least_bytes", ctypes.c_int64),
        ("clock_offset_s", ctypes.c_int64), ("calls", ctypes.c_int64), ("failed", ctypes.c_int64),
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

    def rotates(self, address, timeout_s=5):
        """Whether a call over a new connection succeeds; wrong numbers are an error of their own."""
        got = self._rotated("--server", address, "--timeout", str(timeout_s))
        if got is not None and got != self.right:
            raise AssertionError("WRONG NUMBERS")
        return got is not None

    def uploads(self, address):
        return run(CLI, "tables", "upload", "t", self.table, "--server", address, "--timeout", "5")


    @staticmethod
    def load(address, *shape):
        """A process that makes calls until it is killed."""
        command = [CLI, "bench", "--server", address, "--preset", "rope-interleaved", "--head-dim", "64", "--duration", "60", *shape]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def leases(self, address):
        """Whether calls succeed in memory that the server maps."""
        shape = ["--preset", "rope-interleaved", "--head-dim", "64", "--tokens", "1000", "--duration", "0.3"]
        return run(CLI, "bench", "--shared", "--server", address, *shape).returncode == 0


class Server:
    def __init__(self, bench, *options, limit=None):
        self.bench = bench
        control = bench.folder / "fault"
        control.write_bytes(bytes(Fault(every=1)))
        with open(control, "r+b") as file:
            self.fault = Fault.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(Fault)))
        tables = bench.folder / "tables"
        shutil.rmtree(tables, ignore_errors=True)
        tables.mkdir()
        self.log = open(bench.folder / "server.log", "w+b")
        self.process = subprocess.Popen(
            [SERVER, "--listen=127.0.0.1:0", f"--tables-dir={tables}", "--shared-memory", f"--lease-socket={bench.folder / 'lease.sock'}", "--threads=2", *options],
            env={**os.environ, "LD_PRELOAD": str(bench.shim), "PHASOR_FAULTS": str(control)}, stdout=self.log, stderr=self.log,
            preexec_fn=limit)  # fmt: skip
        deadline = time.monotonic() + 30
        while not (found := re.search(rb"127\.0\.0\.1:[1-9]\d*", self.text())):
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(self.text().decode())
            time.sleep(0.02)
        self.address = found[0].decode()

    def text(self):
        return pathlib.Path(self.log.name).read_bytes()

    def alive(self):
        return self.process.poll() is None

    def serves_again(self):
        deadline = time.monotonic() + SERVES_AGAIN_WITHIN_S
        while time.monotonic() < deadline and self.alive():
            if self.bench.rotates(self.address):
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


def system_call(bench, call, error, every, what, least_bytes, promise):
    """Calls while `call` fails. If the promise begins with a code, failed uploads have it."""
    server = Server(bench)
    try:
        assert bench.rotates(server.address)
        server.fault.error, server.fault.every, server.fault.least_bytes = error, every, least_bytes
        server.fault.call = call.encode()
        succeeded = 0
        for _ in range(TRIES):
            if what == "uploads":
                done = bench.uploads(server.address)
                succeeded += done.returncode == 0
                code = promise.split(",")[0]
                if done.returncode != 0 and code.isupper() and code not in done.stderr.decode():
                    raise AssertionError(f"not {code}: {done.stderr.decode()}")
                if str(bench.folder) in done.stderr.decode():
                    raise AssertionError(f"the answer names a path of the server: {done.stderr.decode()}")
            elif what == "leases":
                succeeded += bench.leases(server.address)
            else:
                succeeded += bench.rotates(server.address)
        if left := [path.name for path in (bench.folder / "tables").iterdir() if path.name.startswith(".")]:
            raise AssertionError(f"parts of tables stay: {left}")
        server.fault.call = b""
        failed = server.fault.failed
        if not server.serves_again():
            raise AssertionError(f"does not serve again; alive: {server.alive()}; {server.text()[-500:].decode(errors='replace')}")
    finally:
        status = server.end()
    if status != 0:
        raise AssertionError(f"after SIGTERM: status {status}")
    if failed > MOST_REPEATS:
        raise AssertionError(f"{failed} system calls failed: the server spins")
    if failed == 0:
        raise AssertionError(f"{call} did not fail even once: the test shows nothing")
    return f"{succeeded} of {TRIES} calls succeeded, {failed} system calls failed; serves again"


SYSTEM_CALLS = [
    # system call, errno or 0 for short, one of so many, what is called, promise
    ("accept4", errno.EMFILE, 1, "rotates", 0, "no connection; accepts again when there is room"),
    ("accept4", errno.ENOMEM, 2, "rotates", 0, "the same"),
    ("accept4", errno.ECONNABORTED, 2, "rotates", 0, "the next connection is accepted"),
    ("accept4", errno.EINTR, 2, "rotates", 0, "the next connection is accepted"),
    ("recvmsg", errno.EINTR, 2, "rotates", 0, "repeated"),
    ("recvmsg", errno.ECONNRESET, 5, "rotates", 0, "the connection ends, its calls are UNAVAILABLE"),
    ("recvmsg", 0, 2, "rotates", 0, "short reads are continued"),
    ("sendmsg", errno.EPIPE, 5, "rotates", 0, "the connection ends"),
    ("sendmsg", 0, 2, "rotates", 0, "short writes are continued"),
    ("epoll_wait", errno.EINTR, 2, "rotates", 0, "repeated"),
    ("mmap", errno.ENOMEM, 1, "leases", 1 << 16, "the lease is refused"),
    ("mkostemp", errno.ENOSPC, 1, "uploads", 0, "RESOURCE_EXHAUSTED, without a path of the server"),
    ("write", errno.ENOSPC, 1, "uploads", 1000, "RESOURCE_EXHAUSTED, no part of a table stays"),
    ("write", errno.EIO, 1, "uploads", 1000, "INTERNAL, no part of a table stays"),
    ("write", 0, 2, "uploads", 1000, "short writes are continued"),
    ("fsync", errno.EIO, 1, "uploads", 0, "INTERNAL, the old table stays"),
    ("rename", errno.EACCES, 1, "uploads", 0, "INTERNAL, the old table stays"),
]


def stopped_server(bench):
    server = Server(bench)
    try:
        server.process.send_signal(signal.SIGSTOP)
        late = [CLI, *bench.rope, "--server", server.address, "--timeout", "30", "--output", bench.folder / "late.npy"]
        caller = subprocess.Popen(late, stdout=subprocess.DEVNULL)
        time.sleep(3)
        server.process.send_signal(signal.SIGCONT)
        if caller.wait(60) != 0 or (bench.folder / "late.npy").read_bytes() != bench.right:
            raise AssertionError("the call did not succeed")
    finally:
        status = server.end()
    assert status == 0, status
    return "the call that waited 3 s succeeded"


def stopped_clients(bench):
    server = Server(bench)
    clients = []
    try:
        clients = [bench.load(server.address) for _ in range(8)]
        time.sleep(1)
        for client in clients:
            client.send_signal(signal.SIGSTOP)
        succeeded = sum(bench.rotates(server.address) for _ in range(TRIES))
    finally:
        for client in clients:
            client.kill()
            client.wait()
        status = server.end()
    assert status == 0 and succeeded == TRIES, (status, succeeded)
    return f"{succeeded} of {TRIES} calls of others succeeded"


class Network:
    """Between clients and the server: every piece waits, pieces are small, and each connection is reset after so many bytes."""

    def __init__(self, address, delay_s, piece_bytes, reset_after):
        host, port = address.rsplit(":", 1)
        self.there = (host, int(port))
        self.delay_s, self.piece_bytes, self.reset_after = delay_s, piece_bytes, reset_after
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                here, _ = self.listener.accept()
                there = socket.create_connection(self.there)
                for end in (here, there):  # closing resets, which the other side sees at once
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                for a, b in ((here, there), (there, here)):
                    threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    def _carry(self, source, sink):
        carried = 0
        with contextlib.suppress(OSError):
            while (piece := source.recv(self.piece_bytes)) and carried < self.reset_after:
                time.sleep(self.delay_s)
                sink.sendall(piece)
                carried += len(piece)
        for end in (source, sink):
            end.close()


def bad_network(bench, delay_s, piece_bytes, reset_after, least, most):
    server = Server(bench)
    network = Network(server.address, delay_s, piece_bytes, reset_after)
    try:
        succeeded = sum(bench.rotates(network.address, timeout_s=50) for _ in range(TRIES))
        serves = server.serves_again()
    finally:
        network.listener.close()
        status = server.end()
    assert status == 0 and serves and least <= succeeded <= most, (status, serves, succeeded)
    return f"{succeeded} of {TRIES} calls succeeded; others are served"


def clock_jumps(bench):
    server = Server(bench)
    try:
        for hours in (1, -1, 24 * 365, 0):
            server.fault.clock_offset_s = hours * 3600
            if not bench.rotates(server.address) or not server.serves_again():
                raise AssertionError(f"a jump to {hours} h")
    finally:
        status = server.end()
    assert status == 0, status
    return "every call succeeded, at +1 h, -1 h, +1 year and back"


def little_memory(bench):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))

    server = Server(bench, limit=limit)
    callers = []
    try:
        callers = [bench.load(server.address, "--tokens", "20000", "--heads", "8") for _ in range(8)]
        for _ in range(TRIES):
            bench.rotates(server.address)
        alive = server.alive()
    finally:
        for caller in callers:
            caller.kill()
            caller.wait()
        status = server.end()
    if alive:
        return "stayed up; no wrong numbers"
    log = server.text().decode(errors="replace")[-300:]
    if status not in (-signal.SIGABRT, 1):
        raise AssertionError(f"ended with {status}: {log}")
    return "the process ended by abort, as it must without memory; no wrong numbers"


OTHERS = [
    ("SIGSTOP of the server for 3 s", "calls wait, and succeed within their deadline", stopped_server),
    ("SIGSTOP of 8 clients in the middle of calls", "others are served", stopped_clients),
    ("network with 5 ms more a piece of 32 KiB", "calls succeed", lambda bench: bad_network(bench, 0.005, 32 << 10, 1 << 40, TRIES, TRIES)),
    ("connections reset after 1 MB", "calls are UNAVAILABLE", lambda bench: bad_network(bench, 0, 64 << 10, 1_000_000, 0, 0)),
    ("wall clock jumps by hours and a year", "no call notices", clock_jumps),
    ("address space limited to 700 MiB, 8 large callers", "no wrong numbers; the process may end", little_memory),
]


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(pathlib.Path(folder))
        assert bench.right is not None
        checks = [
            (f"`{call}`: {errno.errorcode[error] if error else 'short'}, 1 of {every}", promise, lambda a=(call, error, every, what, least, promise): system_call(bench, *a))
            for call, error, every, what, least, promise in SYSTEM_CALLS
        ] + [(kind, promise, lambda check=check: check(bench)) for kind, promise, check in OTHERS]
        print("| fault | promised | what happened |\n|---|---|---|")
        for kind, promise, check in checks:
            try:
                happened = check()
            except Exception as error:  # the other faults are tried all the same
                happened = f"FAILED: {type(error).__name__}: {error}"
                failures.append(kind)
            print(f"| {kind} | {promise} | {happened} |", flush=True)
    sys.exit(1 if failures else 0)


main()
