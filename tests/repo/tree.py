# SPDX-License-Identifier: Apache-2.0
"""The repository as a mapping from path to text, so that rules can also run on made-up trees."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE_SUFFIXES = (".cc", ".h", ".cu", ".cuh")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def load(root=ROOT):
    """Path -> text of every file that is under version control or about to be; None if binary."""
    return {path: _text(root / path) for path in _paths(root) if (root / path).is_file()}


def _paths(root):
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=False
    ) if (root / ".git").exists() else None
    if listed is not None and listed.returncode == 0:
        return sorted(listed.stdout.splitlines())
    paths = []
    for folder, subfolders, names in os.walk(root):  # a source archive, without git
        subfolders[:] = [s for s in subfolders if not s.startswith(("build", ".git", "__pycache__", ".cache", ".venv"))]
        paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(paths)


def _text(path):
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def sources(tree):
    return {path: text for path, text in tree.items() if path.endswith(SOURCE_SUFFIXES)}


def includes(text):
    """(quote, path, line number) of every include."""
    return [(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in INCLUDE.finditer(text)]
