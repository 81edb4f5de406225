# SPDX-License-Identifier: Apache-2.0
"""upgrade_test.py BUILD: replaces the only server of an address under load, as an upgrade of the
package does, and counts failed calls."""

import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/accept"))
import running  # noqa: E402

RATE, SECONDS = 100, 4
AWAY = 3  # seconds: longer than the client waits for a server that nobody can reach


class Nobody:
    """Starts servers, and keeps nothing for them."""

    def start(self, address, shell='exec "$@"', **how):
        """A server that has said that it serves."""
        server = subprocess.Popen(
            ["bash", "-c", shell, "bash", BUILD / "server/phasor-server", f"--listen={address}"], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, **how)
        for line in server.stdout:
            if '"serving"' in line:
                return server
        raise RuntimeError("the server does not start")

    def close(self):
        pass


class Systemd(Nobody):
    """Keeps the sockets of servers as systemd does."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(f"{self.folder.name}/notify")
        self.kept = []

    def start(self, address):
        passed = "".join(f" {3 + i}<&{fd}" for i, fd in enumerate(self.kept))
        shell = f'export NOTIFY_SOCKET={self.folder.name}/notify LISTEN_PID=$$ LISTEN_FDS={len(self.kept)}; exec "$@"{passed}'
        server = super().start(address, shell, pass_fds=self.kept)
        state = b""
        while state != b"READY=1":
            state, descriptors, _, _ = socket.recv_fds(self.notify, 1024, 16)
            if state.startswith(b"FDSTOREREMOVE"):
                self._forget()
            self.kept += descriptors
        return server

    def _forget(self):
        while self.kept:
            socket.close(self.kept.pop())

    def close(self):
        self._forget()
        self.notify.close()
        self.folder.cleanup()


def load_over_upgrades(attempts, keeper, seconds=SECONDS, away=0):
    """What `phasor bench` reports of a load during which the server is drained and replaced twice, each time after `away` seconds."""
    address = f"127.0.0.1:{running.free_port()}"
    server = keeper.start(address)
    try:
        load = subprocess.Popen(
            [BUILD / "client/cli/phasor", "bench", "--server", address, "--preset", "llama-3", "--rate", str(RATE), "--duration", str(seconds),
             "--concurrency", "64", "--attempts", str(attempts), "--timeout", "60", "--json"], stdout=subprocess.PIPE, text=True)

        def go_on_for(time):
            try:
                load.wait(time)
            except subprocess.TimeoutExpired:
                pass

        for _ in range(2):
            go_on_for(1)
            server.send_signal(signal.SIGTERM)
            server.communicate()
            go_on_for(away)
            server = keeper.start(address)
        report = json.loads(load.communicate()[0])["phasor"]
        return report["calls"], report["unsent"], sum(e["count"] for e in report["errors"])
    finally:
        server.kill()
        server.communicate()
        keeper.close()


class UpgradeTest(unittest.TestCase):
    def test_a_client_as_it_comes_loses_no_call(self):
        calls, unsent, failed = load_over_upgrades(3, Nobody())
        self.assertEqual(failed, 0)
        self.assertEqual(calls + unsent, RATE * SECONDS)
        self.assertGreater(calls, 0)
        print(f"MEASURED {calls} calls over two upgrades, {failed} failed")

    def test_a_client_that_repeats_nothing_does(self):
        _, _, failed = load_over_upgrades(1, Nobody())
        self.assertGreater(failed, 0)

    def test_none_is_lost_while_systemd_keeps_the_sockets_however_long_a_server_is_away(self):
        calls, _, failed = load_over_upgrades(3, Systemd(), 3 * AWAY, AWAY)
        self.assertEqual(failed, 0)
        self.assertGreater(calls, 0)
        print(f"MEASURED {calls} calls over two upgrades of {AWAY} s whose sockets systemd kept, {failed} failed")

    def test_calls_are_lost_when_nobody_keeps_them(self):
        _, _, failed = load_over_upgrades(3, Nobody(), 3 * AWAY, AWAY)
        self.assertGreater(failed, 0)


if __name__ == "__main__":
    unittest.main()
