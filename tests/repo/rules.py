# SPDX-License-Identifier: Apache-2.0
"""Small rules over a tree. Each returns one line per violation."""

import re

from tree import sources

MAX_LINES = 500
CODE = (".cc", ".h", ".cu", ".cuh", ".py", ".cmake", ".proto", ".sh", ".yaml")
CODE_NAMES = ("CMakeLists.txt", "Dockerfile", "dev", "run")


def is_code(path):
    name = path.rsplit("/", 1)[-1]
    return (path.endswith(CODE) or name in CODE_NAMES) and name != "buf.yaml"


def long_files(tree, allowed):
    found = []
    for path, text in tree.items():
        lines = (text or "").count("\n")
        if is_code(path) and lines > MAX_LINES and path not in allowed:
            found.append(f"{path}: {lines} lines, at most {MAX_LINES}: split it, or state a reason in tests/repo/allowlist.py")
        if path in allowed and lines <= MAX_LINES:
            found.append(f"{path}: {lines} lines, its exception in tests/repo/allowlist.py is not needed")
    return found + [f"{path}: is in tests/repo/allowlist.py but does not exist" for path in allowed if path not in tree]


def missing_spdx(tree):
    wanted = "SPDX-License-Identifier: Apache-2.0"
    return [
        f"{path}: no '{wanted}' in the first three lines"
        for path, text in tree.items()
        if is_code(path) and wanted not in "\n".join((text or "").split("\n")[:3])
    ]


def forbidden_flags(tree):
    """Flags that would change results from machine to machine, in build files. Other projects' kernels are compiled as they
    compile them."""
    flags = re.compile(
        r"(?<!no-)-ffast-math|-Ofast|-march=native|-mtune=native|-funsafe-math|-fassociative-math|-use_fast_math"
        r"|--use_fast_math|-ffp-contract=(fast|on)|-fmad=true"
    )
    found = []
    for path, text in tree.items():
        if not re.search(r"(CMakeLists\.txt|\.cmake|CMakePresets\.json|Dockerfile|^dev|\.sh)$", path):
            continue
        if path.startswith("bench/cuda/peers/"):
            continue
        for number, line in enumerate((text or "").split("\n"), 1):
            match = flags.search(line)
            if match and not line.lstrip().startswith("#"):
                found.append(f"{path}:{number}: {match[0]} is forbidden (docs/numerics.md)")
    return found


def include_guards(tree):
    found = []
    for path, text in tree.items():
        if not path.endswith(".h") or path.endswith("-inl.h"):
            continue
        guard = "PHASOR_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"
        if f"#ifndef {guard}\n#define {guard}\n" not in (text or ""):
            found.append(f"{path}: include guard is not {guard}")
    return found


def untested_sources(tree, allowed):
    """X/Y.cc has tests/X/Y_test.cc; the files of an op (kernels/ROOM/op.cc) may share tests/kernels/op_test.cc."""
    found = []
    for path in sources(tree):
        if not path.endswith((".cc", ".cu")) or not path.startswith(("kernels/", "server/", "client/", "proto/")):
            continue
        stem = path.rsplit(".", 1)[0]
        shared = re.sub(r"^kernels/(reference|cpu|cuda|request)/", "kernels/", stem)
        tested = any(f"tests/{s}_test.cc" in tree for s in (stem, shared))
        if not tested and path not in allowed:
            found.append(f"{path}: no tests/{stem}_test.cc; write it, or state a reason in tests/repo/allowlist.py")
        if tested and path in allowed:
            found.append(f"{path}: has a test, its exception in tests/repo/allowlist.py is not needed")
    return found


def empty_test_names(tree):
    """The name of a test is a claim: at least two words, and none of the words that claim nothing."""
    macro = re.compile(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P|HWY_[A-Z_]*TEST[A-Z_]*)\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
    empty = {"Test", "Basic", "Basics", "Works", "Simple", "Sanity", "Smoke", "Misc", "Ok", "Foo"}
    found = []
    for path, text in sources(tree).items():
        for match in macro.finditer(text or ""):
            words = re.findall(r"[A-Z][a-z0-9]*|\d+", match[2])
            if len(words) < 2 or all(word in empty or word.isdigit() for word in words):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path}:{line}: test {match[1]}.{match[2]} claims nothing; say what holds")
    return found


def bare_grpc_servers(tree):
    """Every gRPC server of the product is made in one place, which sets its limits."""
    maker = "server/grpc/grpc_server.cc"
    return [
        f"{path}: makes a gRPC server, only {maker} may: it sets the limits"
        for path, text in tree.items()
        if path.startswith("server/") and path != maker and "grpc::ServerBuilder " in (text or "")
    ]


# A call that sleeps, in C++, Python and shell. A word in a comment or a longer name is none.
SLEEP = re.compile(
    r"\bSleepFor\(|\bsleep_(?:for|until)\(|\bu?sleep\(|\bnanosleep\(|(?:^|[\"\s;&|(])sleep [\d$\"]", re.MULTILINE)


def fixed_sleeps(tree, allowed):
    """A test waits for what it can see, with Eventually (tests/support/eventually.h): a fixed time is too short on a slow
    machine and too long on a fast one. What has to sleep (the wait itself, a load that keeps a rate, a slow peer) states why."""
    found = []
    for path, text in tree.items():
        if not path.startswith("tests/") or not is_code(path):
            continue
        lines = [text.count("\n", 0, match.start() + 1) + 1 for match in SLEEP.finditer(text or "")]
        if path in allowed and not lines:
            found.append(f"{path}: does not sleep, its exception in tests/repo/allowlist.py is not needed")
        if path not in allowed:
            found += [f"{path}:{line}: sleeps; wait with Eventually, or state a reason in tests/repo/allowlist.py" for line in lines]
    return found + [f"{path}: is in tests/repo/allowlist.py but does not exist" for path in allowed if path not in tree]


def loose_workflows(tree):
    """What runs on a public forge: actions are pinned by commit, and the token may only read."""
    found = []
    for path, text in tree.items():
        if not re.match(r"\.github/workflows/.*\.ya?ml$", path):
            continue
        if not re.search(r"^permissions:\n  contents: read\n(?! )", text, re.MULTILINE):
            found.append(f"{path}: must have `permissions:` with `contents: read` only")
        for match in re.finditer(r"^\s*(?:- )?uses: *(\S+)", text, re.MULTILINE):
            if not re.search(r"@[0-9a-f]{40}$", match[1]):
                found.append(f"{path}: {match[1]} is not pinned by the 40 digits of a commit")
    return found
