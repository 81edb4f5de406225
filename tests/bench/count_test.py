# SPDX-License-Identifier: Apache-2.0
"""bench/instructions/count.py with a program and a valgrind that say what they are told to."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

COUNT = pathlib.Path(__file__).resolve().parents[2] / "bench/instructions/count.py"
PROGRAM = "#!/bin/sh\n[ $# = 1 ] || printf 'GCC 12\\nfirst\\nsecond\\n'\n"
# Writes a total of 10 runs to the file that --callgrind-out-file names.
VALGRIND = "#!/bin/sh\nfor a in \"$@\"; do case $a in --callgrind-out-file=*) echo 'totals: {total}' >\"${{a#*=}}\" ;; esac; done\necho 10\n"


class Count(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "count.py").write_text(COUNT.read_text(encoding="utf-8"), encoding="utf-8")
        self.script("program", PROGRAM)

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def limits(self, compiler="GCC 12", names=("first", "second")):
        workloads = {name: {"count": 1000, "limit": 1060, "date": "2026-01-01"} for name in names}
        (self.folder / "limits.json").write_text(json.dumps({"compiler": compiler, "workloads": workloads}), encoding="utf-8")

    def count(self, total, *arguments, path=None):
        self.script("valgrind", VALGRIND.format(total=total))
        command = [sys.executable, str(self.folder / "count.py"), str(self.folder / "program"), *arguments]
        environment = os.environ | {"PATH": path or f"{self.folder}:{os.environ['PATH']}"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def test_passes_up_to_the_limit_and_fails_above_it(self):
        self.limits()
        self.assertEqual(self.count(10600).returncode, 0)
        above = self.count(10610)
        self.assertEqual(above.returncode, 1)
        self.assertIn("1,061         1,000         1,060   1.061  ABOVE THE LIMIT", above.stdout)

    def test_a_workload_without_a_limit_and_a_limit_without_a_workload_fail(self):
        self.limits(names=["first"])
        self.assertEqual(self.count(10000).returncode, 1)
        self.limits(names=["first", "second", "third"])
        self.assertIn("third: has a limit", self.count(10000).stdout)
        self.assertEqual(self.count(10000).returncode, 1)

    def test_update_writes_counts_and_limits_five_percent_above(self):
        self.limits(names=["third"])
        self.assertEqual(self.count(20000, "--update").returncode, 0)
        written = json.loads((self.folder / "limits.json").read_text(encoding="utf-8"))["workloads"]
        self.assertEqual(list(written), ["first", "second"])
        self.assertEqual((written["first"]["count"], written["first"]["limit"]), (2000, 2100))

    def test_says_when_much_was_saved(self):
        self.limits()
        self.assertIn("much fewer", self.count(9000).stdout)

    def test_nothing_counted_is_an_error(self):
        self.limits()
        self.assertEqual(self.count(0).returncode, 1)

    def test_skips_with_a_reason_code_of_another_compiler_and_machines_without_valgrind(self):
        self.limits(compiler="GCC 14")
        other = self.count(10000)
        self.assertEqual(other.returncode, 77)
        self.assertIn("SKIP: the limits hold for code of GCC 14; this is of GCC 12", other.stdout)
        self.limits()
        empty = self.folder / "empty"
        empty.mkdir()
        self.assertIn("SKIP: valgrind is not installed", self.count(10000, path=f"{empty}").stdout)

    def test_rows_are_those_of_other_benchmarks(self):
        self.limits()
        self.count(5300, str(self.folder / "out.json"))
        rows = json.loads((self.folder / "out.json").read_text(encoding="utf-8"))
        self.assertEqual([row["name"] for row in rows], ["first", "second"])
        self.assertEqual((rows[0]["value"], rows[0]["ratio"], rows[0]["target"]), (530, 2.0, 1.0))


if __name__ == "__main__":
    unittest.main()
