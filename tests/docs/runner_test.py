# SPDX-License-Identifier: Apache-2.0
"""commands_test.py passes pages that tell the truth and fails those that do not. $PHASOR_BUILD: the build folder."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

COMMANDS = pathlib.Path(__file__).with_name("commands_test.py")
ENCODE = "phasor encode --preset transformer --dim 4 --positions 2"
ROW = "FLOAT32 [1, 4]\n[0]   0.909297  -0.416147   0.019999   0.999800\nspec ... cpu\n"


def run(page):
    """(exit status, what was printed) for a page of that text."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "page.md")
        path.write_text(page, encoding="utf-8")
        done = subprocess.run([sys.executable, str(COMMANDS), str(path)], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class RunnerTest(unittest.TestCase):
    def passes(self, page, *words):
        status, printed = run(page)
        self.assertEqual(status, 0, printed)
        for word in words:
            self.assertIn(word, printed)

    def fails(self, page, word):
        status, printed = run(page)
        self.assertEqual(status, 1, printed)
        self.assertIn(word, printed)

    def test_a_command_must_end_with_the_status_that_the_page_says(self):
        self.passes(f"    {ENCODE}\n", "ran 1, not run 0")
        self.fails("    phasor encode --preset transformr --dim 4 --positions 2\n", "exit status 1, not 0")
        self.passes("<!-- exit status: 1 -->\n\n    phasor encode --preset transformr --dim 4 --positions 2\n")
        self.fails(f"<!-- exit status: 1 -->\n\n    {ENCODE}\n", "exit status 0, not 1")

    def test_what_the_page_shows_must_be_what_is_printed(self):
        self.passes(f"    {ENCODE}\n\n```\n{ROW}```\n")
        self.fails(f"    {ENCODE}\n\n```\n{ROW.replace('0.909297', '0.909298')}```\n", "the page shows `[0] 0.909298")
        self.passes(f"    {ENCODE}\n\n<!-- numbers vary -->\n```\n{ROW.replace('0.909297', '0.909298')}```\n")
        self.passes(f"```console\n$ {ENCODE}\n{ROW}$ phasor --version\n```\n")

    def test_a_page_that_calls_a_server_has_one(self):
        self.passes(f"    {ENCODE} --server 127.0.0.1:50051\n\n```\n{ROW}```\n")
        self.passes(f"    phasor-server --listen unix:/run/phasor/a.sock\n    {ENCODE} --server unix:/run/phasor/a.sock\n", "ran 2")
        self.fails("    phasor-server --lisen 127.0.0.1:50051\n", "the server does not serve")

    def test_a_configuration_of_a_page_must_be_one(self):
        self.passes("    # /etc/phasor/a.txtpb\n    threads: 4\n\nthen\n\n    phasor-server --config /etc/phasor/a.txtpb --print-config\n")
        self.fails("    # /etc/phasor/a.txtpb\n    treads: 4\n", "did you mean 'threads'?")

    def test_what_is_not_run_is_counted(self):
        self.passes("    phasor encode --preset PRESET\n    docker run x\n\nand\n\n<!-- not run: takes hours -->\n    phasor bench\n",
                    "not run 3", "needs a container engine", "takes hours", "PRESET stands for")  # fmt: skip


if __name__ == "__main__":
    unittest.main()
