# SPDX-License-Identifier: Apache-2.0
"""upgrade_test.py BUILD: replaces the only server of an address under load, as an upgrade of the
package does, and counts failed calls."""

import json
import pathlib
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/accept"))
import running  # noqa: E402

RATE, SECONDS = 100, 4


def start(address):
    """A server that has said that it serves."""
    server = subprocess.Popen([BUILD / "server/phasor-server", f"--listen={address}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in server.stdout:
        if '"serving"' in line:
            return server
    raise RuntimeError("the server does not start")


def load_over_upgrades(attempts):
    """What `phasor bench` reports of a load during which the server is drained and replaced twice."""
    address = f"127.0.0.1:{running.free_port()}"
    server = start(address)
    try:
        load = subprocess.Popen(
            [BUILD / "client/cli/phasor", "bench", "--server", address, "--preset", "llama-3", "--rate", str(RATE), "--duration",
             str(SECONDS), "--concurrency", "64", "--attempts", str(attempts), "--json"], stdout=subprocess.PIPE, text=True)
        for _ in range(2):
            try:
                load.wait(SECONDS / 4)
            except subprocess.TimeoutExpired:
                pass
            server.send_signal(signal.SIGTERM)
            server.communicate()
            server = start(address)
        report = json.loads(load.communicate()[0])["phasor"]
        return report["calls"], report["unsent"], sum(e["count"] for e in report["errors"])
    finally:
        server.kill()
        server.communicate()


class UpgradeTest(unittest.TestCase):
    def test_a_client_as_it_comes_loses_no_call(self):
        calls, unsent, failed = load_over_upgrades(3)
        self.assertEqual(failed, 0)
        self.assertEqual(calls + unsent, RATE * SECONDS)
        self.assertGreater(calls, 0)
        print(f"MEASURED {calls} calls over two upgrades, {failed} failed")

    def test_a_client_that_repeats_nothing_does(self):
        _, _, failed = load_over_upgrades(1)
        self.assertGreater(failed, 0)


if __name__ == "__main__":
    unittest.main()
