# SPDX-License-Identifier: Apache-2.0
"""sockets_test.py BUILD: sends changed bytes to every socket of a real server: HTTP/2 frames, HTTP requests for metrics, lines of the
lease socket. The server stays up, serves others all the time, and keeps nothing. PHASOR_FUZZ_RUNS sets the number of connections
for each socket, 1000 unless set; PHASOR_FUZZ_SEED the seed."""

import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/accept"))
import running

BUILD = pathlib.Path(sys.argv[1]).resolve()
CLI = BUILD / "client/cli/phasor"
RUNS = int(os.environ.get("PHASOR_FUZZ_RUNS", 1000))
RANDOM = random.Random(int(os.environ.get("PHASOR_FUZZ_SEED", 1)))
GROWTH_MIB = 64
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, payload, stream=1):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def text(value):
    return bytes([len(value)]) + value


def call(path, message=b"", stream=1):
    block = b"\x83\x86\x04" + text(path) + b"\x01\x01x\x00" + text(b"content-type") + text(b"application/grpc") + b"\x00" + text(b"te") + text(b"trailers")
    return frame(1, 4, block, stream) + frame(0, 1, b"\0" + len(message).to_bytes(4, "big") + message, stream)


SERVICE = b"/phasor.v1.PositionEmbeddingService/"
FRAMES = [
    PREFACE + frame(4, 0, b"", 0) + call(SERVICE + b"Encode") + call(b"/grpc.health.v1.Health/Check", stream=3),
    PREFACE + frame(4, 0, b"\0\4\0\0\0\0", 0) + frame(8, 0, b"\0\1\0\0", 0) + call(SERVICE + b"StreamEncode"),
    PREFACE + frame(4, 0, b"", 0) + frame(6, 0, b"12345678", 0) + call(SERVICE + b"ListPresets") + frame(3, 0, b"\0\0\0\x08", 1) + frame(7, 0, bytes(8), 0),
    PREFACE + frame(4, 0, b"", 0) + call(b"/inference.GRPCInferenceService/ModelInfer", b"\n\x0btransformer"),
]
HTTP = [b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n", b"HEAD /metrics HTTP/1.0\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"]
LINES = [b"LEASE\n", b"RELEASE 0123456789abcdef0123456789abcdef\nLEASE\n", b"\n\n"]


def changed(seeds):
    data = bytearray(RANDOM.choice(seeds))
    for _ in range(RANDOM.randrange(6)):
        at = RANDOM.randrange(len(data))
        how = RANDOM.randrange(4)
        if how == 0:
            data[at] = RANDOM.randrange(256)
        elif how == 1:
            data[at:at] = RANDOM.randbytes(RANDOM.randrange(1, 12))
        elif how == 2:
            del data[at : at + RANDOM.randrange(1, 12)]
        else:
            data += RANDOM.choice(seeds)[RANDOM.randrange(8) :]
        data = data or bytearray(b"x")
    return bytes(data)


def connected(target):
    if isinstance(target, str):
        link = socket.socket(socket.AF_UNIX)
        link.connect(target)
        return link
    return socket.create_connection(target)


def throw(target, data, descriptor=None):
    """Sends the bytes in a few pieces, takes some of the answer and hangs up."""
    with connected(target) as link:
        link.settimeout(0.02)
        try:
            cut = RANDOM.randrange(len(data) + 1)
            if descriptor is not None and cut > 0:
                socket.send_fds(link, [data[:cut]], [descriptor] * RANDOM.randrange(1, 4))
            else:
                link.sendall(data[:cut])
            link.sendall(data[cut:])
            link.recv(4096)
        except OSError:
            pass  # it has had enough, or answers nothing


def resident_mib(pid):
    return int(re.search(r"^VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8"), re.MULTILINE)[1]) / 1024


def serves(address):
    command = [CLI, "encode", "--server", address, "--preset", "transformer", "--dim", "4", "--positions", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0 or "0.909297" not in done.stdout:
        sys.exit(f"does not serve: {done.stdout}{done.stderr}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        lease, metrics = f"{folder}/lease.sock", running.free_port()
        command = [BUILD / "server/phasor-server", f"--lease-socket={lease}", f"--metrics-listen=127.0.0.1:{metrics}", "--threads=1", "--handshake-timeout=1s"]
        with running.server_process(command) as (address, process):
            grpc = ("127.0.0.1", int(address.rsplit(":", 1)[1]))
            serves(address)
            for run in range(min(RUNS, 100)):  # what is kept for speed
                throw(grpc, FRAMES[run % len(FRAMES)])
            before = resident_mib(process.pid)
            with open(__file__, "rb") as ordinary:
                for run in range(RUNS):
                    throw(grpc, changed(FRAMES))
                    throw(("127.0.0.1", metrics), changed(HTTP))
                    throw(lease, changed(LINES), ordinary.fileno() if run % 2 else None)
                    if run % 100 == 0:
                        serves(address)
            serves(address)
            grown = resident_mib(process.pid) - before
            print(f"MEASURED {3 * RUNS} connections, memory {grown:+.1f} MiB")
            if grown > GROWTH_MIB:
                sys.exit(f"memory grew by {grown:.1f} MiB; at most {GROWTH_MIB}")


main()
