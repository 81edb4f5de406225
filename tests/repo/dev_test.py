# SPDX-License-Identifier: Apache-2.0
"""Runs a copy of ./dev from another folder, in a checkout whose path has a space. Programs that would install or compile are
replaced by ones that note their arguments."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class DevTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.checkout = self.scratch / "a checkout"
        shutil.copytree(ROOT / "tests/accept", self.checkout / "tests/accept")
        shutil.copytree(ROOT / "deploy", self.checkout / "deploy")
        shutil.copy(ROOT / "dev", self.checkout)
        self.program("bin/cmake", 'printf "%s\\n" "$@" >>cmake.txt')
        self.program("bin/dpkg-query", 'printf "installed %s\\n" "$@"')
        self.program("bin/apt-get", "echo it installs >&2; exit 1")

    def program(self, path, text):
        file = self.scratch / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        file.chmod(0o755)

    def dev(self, *arguments):
        environment = os.environ | {"PATH": f"{self.scratch}/bin:{os.environ['PATH']}"}
        return subprocess.run(["a checkout/dev", *arguments], cwd=self.scratch, env=environment, capture_output=True, text=True, check=False)

    def commands(self):
        done = self.dev("help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return re.findall(r"^  ([\w-]+)", done.stdout, re.MULTILINE)

    def test_every_command_says_how_it_is_used_and_does_nothing_else(self):
        commands = self.commands()
        self.assertIn("demo", commands)
        for command in commands:
            with self.subTest(command=command):
                done = self.dev(command, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertRegex(done.stdout, rf"^usage: \./dev {command}\b.*\n.+\n$")
        self.assertFalse((self.checkout / "build").exists())

    def test_arguments_that_nobody_reads_are_refused_before_anything_is_done(self):
        for arguments in ("demo x", "lint x", "fmt x", "docs x", "help x", "test x", "test --quick x", "package x", "package --shared-wheel x",
                          "release x", "release --check x", "accept house x", "conformance x", "conformance --update x", "soak x", "soak 1 x",
                          "soak 1 2 x", "image a x", "gpu-test --package x"):  # fmt: skip
            with self.subTest(arguments=arguments):
                done = self.dev(*arguments.split())
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, r"^dev: [\w-]+: unknown argument 'x'; ")

    def test_accept_names_its_topics(self):
        for arguments, wrong in ((("accept",), "no topic"), (("accept", "acceptance"), "unknown topic 'acceptance'")):
            done = self.dev(*arguments)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, f"^dev: accept: {wrong}, accepted: .*move-keys oip")

    def test_cmake_gets_a_path_with_a_space_as_one_argument(self):
        self.program("a checkout/build/.venv/bin/python", "exit 0")
        self.dev("run")
        self.assertIn(f"-DPython_EXECUTABLE={self.checkout}/build/.venv/bin/python", (self.checkout / "cmake.txt").read_text().splitlines())


if __name__ == "__main__":
    unittest.main()
