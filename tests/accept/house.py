# SPDX-License-Identifier: Apache-2.0
"""Checks the layout of the source: folders that show the architecture, public headers under phasor/, docs whose commands
run, one codec, and what the change took away. Uses the results of the last `./dev test`."""

import re
import subprocess
import sys

import acceptance
from acceptance import ROOT, Fail, Skip, of_test

sys.path.insert(0, str(ROOT / "tests/repo"))
import layering  # noqa: E402
import tree  # noqa: E402

TOPIC = "house"
BEFORE = "b63d1ab"  # the last commit before the folders were laid out
SOURCE = re.compile(r"^(kernels|server|client|proto)/.*\.(cc|h|cu|proto)$")
# From the wire to the kernel: the values that one rotation is, each in its header.
TYPES = {
    "WalkedMessage": "proto/raw_message.h",
    "ApplyRoPEItem": "proto/phasor/v1/position_embedding_service.proto",
    "RopeRequest": "kernels/request/request.h",
    "PreparedRope": "kernels/request/request.h",
    "Item": "server/engine/call.h",
    "RotaryJob": "kernels/backend/batch.h",
    "RotaryArgs": "kernels/ops/rotary.h",
}


def include_table():
    """the include table names folders only, has no cycle, and the tree keeps to it"""
    names = [*layering.MAY_INCLUDE, *(name for names in layering.MAY_INCLUDE.values() for name in names)]
    patterns = [name for name in names if re.search(r"[\\*?|()$^.]", name)]
    missing = [name for name in layering.MAY_INCLUDE if name != "generated" and not (ROOT / name).is_dir()]
    found = patterns + missing + layering.violations(tree.load())
    if found:
        raise Fail("; ".join(found[:5]))
    return f"{len(layering.MAY_INCLUDE)} folders"


def public_headers():
    """public headers are under phasor/"""
    made = ROOT / "build/release/include"
    if not made.is_dir():
        raise Skip("no build/release/include: run ./dev test")
    if sorted(path.name for path in made.iterdir()) != ["phasor"]:
        raise Fail(f"{made} has {sorted(path.name for path in made.iterdir())}")
    wrong = [
        f"{header.relative_to(made)}: {line}"
        for header in made.rglob("*.h")
        for line in re.findall(r'#include "([^"]+)"', header.read_text(encoding="utf-8"))
        if not line.startswith(("phasor/", "absl/", "gmock/"))
    ]
    if wrong:
        raise Fail("; ".join(wrong[:5]))
    return f"{len(list(made.rglob('*.h')))} headers"


def types_on_the_way():
    """values from the wire to the kernel, each where ARCHITECTURE.md says"""
    for name, header in TYPES.items():
        text = (ROOT / header).read_text(encoding="utf-8")
        if not re.search(rf"^(struct|class|message) {name}\b", text, re.MULTILINE):
            raise Fail(f"{header} has no {name}")
    return f"{len(TYPES)}: {', '.join(TYPES)}"


def walk_of_a_call():
    """ARCHITECTURE.md walks one ApplyRoPE through at most 15 files, which exist"""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walk = text.split("## One ApplyRoPE, file by file")[1].split("\n## ")[0].split("\nCopies:")[0]
    files = {name for name in re.findall(r"`([\w/]+\.cc)`", walk) if "/" in name}
    gone = [name for name in files if not (ROOT / name).is_file()]
    if gone or len(files) > 15:
        raise Fail(f"{len(files)} files, of which {gone} do not exist")
    return f"{len(files)} files"


def _git(*arguments):
    done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def _code_lines(text):
    """Lines that are neither empty nor a comment."""
    return sum(1 for line in text.split("\n") if line.strip() and not line.lstrip().startswith("//"))


def source_lines():
    """source lines of kernels, server, client and proto fall by at least 2,000, without comments and empty lines"""
    before, after = {}, {}
    for path in _git("ls-tree", "-r", "--name-only", BEFORE).split():
        if SOURCE.match(path):
            folder = path.split("/")[0]
            before[folder] = before.get(folder, 0) + _code_lines(_git("show", f"{BEFORE}:{path}"))
    for path, text in tree.load().items():
        if SOURCE.match(path):
            folder = path.split("/")[0]
            after[folder] = after.get(folder, 0) + _code_lines(text or "")
    seen = ", ".join(f"{folder} {before[folder]} -> {after[folder]}" for folder in sorted(before))
    if sum(before.values()) - sum(after.values()) < 2000:
        raise Fail(seen)
    return seen


CHECKS = [
    include_table,
    of_test("the rules about the source hold", r"repo\.(layering|headers|symmetry|size|guards|sleeps|docs|rules_find_planted_violations)"),
    public_headers,
    of_test("the installed package builds the quickstart after it was moved, and as part of a project", r"quickstart_(installed|from_source)"),
    of_test("command blocks of the documents run", r"docs\.(blocks|runner|commands)"),
    of_test("the site of the documents has no broken link", r"docs\.site"),
    of_test("one codec of raw messages decides as protobuf's parser does", r"(asan/)?(raw_message_fuzz_test|proto_test)"),
    of_test("both protocols bind shared memory in one place", r"(asan/)?server_(memory|oip|api)_test"),
    of_test("results have the bits that they had", r"golden_test"),
    walk_of_a_call,
    types_on_the_way,
    source_lines,
]

if __name__ == "__main__":
    acceptance.run(TOPIC, CHECKS)
