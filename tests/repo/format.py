# SPDX-License-Identifier: Apache-2.0
"""Checks that C++ and proto sources are formatted by .clang-format. `format.py` checks, `format.py
--fix` rewrites."""

import shutil
import subprocess
import sys

import tree

SKIP = 77


def main():
    tool = shutil.which("clang-format")
    if tool is None:
        print("SKIP: clang-format is not installed")
        sys.exit(SKIP)
    files = sorted(tree.sources(tree.load()))
    mode = ["-i"] if "--fix" in sys.argv else ["--dry-run", "-Werror"]
    sys.exit(subprocess.run([tool, *mode, *files], cwd=tree.ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
