# SPDX-License-Identifier: Apache-2.0
"""Checks that the server accepts every whole configuration that the pages show. $PHASOR_BUILD: the build folder."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import blocks

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVER = pathlib.Path(os.environ["PHASOR_BUILD"]) / "server/phasor-server"


def configurations():
    """(place, text) of every block that says what to listen on: such a block is a whole file."""
    for page in sorted(ROOT.glob("docs/*.md")):
        for block in blocks.blocks(page.read_text(encoding="utf-8")):
            if block.first_line().strip().startswith(("listen:", '{"listen"')):
                yield f"{page.relative_to(ROOT)}:{block.line}", block.text


class ConfigurationsTest(unittest.TestCase):
    def test_server_accepts_every_configuration_of_the_pages(self):
        found = list(configurations())
        self.assertGreater(len(found), 1, "the pages show no configuration")
        for place, text in found:
            with self.subTest(place), tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                command = [SERVER, "--check-config", "--config", file.name]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), text)


if __name__ == "__main__":
    if not SERVER.exists():
        print("SKIP: this build has no server")
        sys.exit(77)
    unittest.main()
