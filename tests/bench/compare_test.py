# SPDX-License-Identifier: Apache-2.0
"""bench/compare.py on a repository whose benchmark prints a number from its source."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import compare

PRESETS = {"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release"}]}
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(tiny LANGUAGES CXX)
add_executable(bench_plan plan.cc)
set_target_properties(bench_plan PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench/kernels)
"""
PROGRAM = """#include <cstdio>
int main(int, char** argv) {
  std::FILE* const out = std::fopen(argv[1], "w");
  std::fputs(R"(ROWS)", out);
  return std::fclose(out);
}
"""


def row(value, unit, baseline_value, is_rate, **more):
    ratio = value / baseline_value if is_rate else baseline_value / value
    return {"name": "plan", "shape": "", "dtype": "", "threads": 1, "cache": "", "value": value, "unit": unit, "baseline": "limit",
            "baseline_value": baseline_value, "ratio": ratio} | more


def keyed(*rows):
    return {compare.key_of(r): r for r in rows}


class Table(unittest.TestCase):
    def test_a_shorter_time_and_a_higher_rate_are_better(self):
        self.assertAlmostEqual(compare.gain(row(2, "us", 10, False), row(1, "us", 10, False)), 2)
        self.assertAlmostEqual(compare.gain(row(2, "GB/s", 10, True), row(1, "GB/s", 10, True)), 0.5)
        self.assertAlmostEqual(compare.gain(row(9.99, "us", 10, False), row(4.995, "us", 10, False)), 2)

    def test_says_slower_only_if_every_round_is(self):
        def rounds(*values):
            return [(keyed(row(10, "us", 100, False)), keyed(row(v, "us", 100, False))) for v in values]

        self.assertIn("SLOWER", compare.table(rounds(11, 12, 13)))
        self.assertIn("0.833  0.769 to 0.909", compare.table(rounds(11, 12, 13)))
        self.assertNotIn("SLOWER", compare.table(rounds(11, 12, 9.9)))
        self.assertIn("faster", compare.table(rounds(5, 6, 7)))

    def test_names_rows_that_the_checkout_lacks(self):
        self.assertIn("not in this checkout", compare.table([(keyed(row(1, "us", 1, False)), {})]))


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = pathlib.Path(folder.name, "cache")
        self.tree = pathlib.Path(folder.name, "tree")
        self.tree.mkdir()
        self.git("init", "-q")
        (self.tree / "CMakeLists.txt").write_text(CMAKE, encoding="utf-8")
        (self.tree / "CMakePresets.json").write_text(json.dumps(PRESETS), encoding="utf-8")
        (self.tree / ".gitignore").write_text("build\n", encoding="utf-8")
        self.commit(8)
        self.commit(4)
        subprocess.run(["cmake", "--preset", "release"], cwd=self.tree, check=True, capture_output=True)
        subprocess.run(["cmake", "--build", "build/release"], cwd=self.tree, check=True, capture_output=True)

    def git(self, *arguments):
        who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        return subprocess.run(["git", *who, *arguments], cwd=self.tree, check=True, capture_output=True, text=True).stdout

    def commit(self, microseconds):
        rows = json.dumps([row(microseconds, "us", 100, False)])
        (self.tree / "plan.cc").write_text(PROGRAM.replace("ROWS", rows), encoding="utf-8")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", f"{microseconds} us")

    def compare(self, *arguments):
        command = [sys.executable, str(ROOT / "bench/compare.py"), *arguments, "--quick"]
        environment = os.environ | {"XDG_CACHE_HOME": str(self.cache)}
        return subprocess.run(command, cwd=self.tree, env=environment, capture_output=True, text=True, check=False)

    def test_builds_the_other_commit_once_and_leaves_no_worktree(self):
        first = self.compare("HEAD~1", "plan")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertRegex(first.stdout, r"plan x1 +8 +4 us +2\.000  2\.000 to 2\.000  faster")
        self.assertEqual(len(self.git("worktree", "list").splitlines()), 1)
        self.assertFalse((self.cache / "phasor/worktree").exists())
        self.assertIn("building", first.stdout)
        again = self.compare("HEAD~1", "plan")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertNotIn("building", again.stdout)

    def test_a_commit_without_the_benchmark_is_an_error_that_leaves_no_worktree(self):
        done = self.compare("HEAD~1", "kernels")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the commit may lack this benchmark", done.stderr)
        self.assertEqual(len(self.git("worktree", "list").splitlines()), 1)

    def test_keeps_the_builds_of_three_commits(self):
        for microseconds in (3, 2, 1):
            self.commit(microseconds)
        for ref in ("HEAD", "HEAD~1", "HEAD~2", "HEAD~3"):
            self.assertEqual(self.compare(ref, "plan").returncode, 0)
        kept = {build.name for build in (self.cache / "phasor/compare").iterdir()}
        self.assertEqual(kept, {self.git("rev-parse", f"HEAD~{i}").strip() for i in (1, 2, 3)})

    def test_an_unknown_commit_is_an_error(self):
        self.assertIn("no-such-commit", self.compare("no-such-commit", "plan").stderr)


if __name__ == "__main__":
    unittest.main()
