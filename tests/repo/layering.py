# SPDX-License-Identifier: Apache-2.0
"""Who may include whom. These tables are the rule, and ARCHITECTURE.md explains it. They name only
folders."""

import re

from tree import includes, sources

# Folder -> the folders that its files may include, beside itself. From the bottom up: a folder names only folders above it in
# this file. A file belongs to the innermost folder here that it lies in.
KERNELS = {
    "kernels/base": [],
    "kernels/math": ["kernels/base"],
    "kernels/ops": ["kernels/base", "kernels/math"],
    "kernels/tensor": ["kernels/base", "kernels/math"],
    "kernels/spec": ["kernels/base", "kernels/math", "kernels/ops", "kernels/tensor"],
    "kernels/plan/parity": ["kernels/base", "kernels/math", "kernels/spec"],
    "kernels/plan": ["kernels/base", "kernels/math", "kernels/ops", "kernels/tensor", "kernels/spec", "kernels/plan/parity"],
}
PLANS = [*KERNELS]
KERNELS |= {"kernels/backend": PLANS}
JOBS = [*KERNELS]
KERNELS |= {
    "kernels/request": JOBS,
    "kernels/reference": JOBS,
    "kernels/cpu": [*JOBS, "kernels/reference"],  # what SIMD does not do falls back to the definition
    "kernels/cuda": JOBS,
}
KERNELS |= {"kernels": [*KERNELS]}  # backends.cc and self_test.cc: the parts put together

VALUES = [*JOBS, "kernels/request"]  # what the rest of the product uses; backends are made by kernels/backends.h
WIRE = ["proto", "generated"]

SERVER = {
    "server/base": VALUES,
    "server/net": [*VALUES, "server/base"],
    "server/engine": [*VALUES, "server/base"],
    "server/memory": [*VALUES, "server/base", "server/engine"],
    "server/tables": [*VALUES, "server/base"],
    "server/security": [*VALUES, "server/base"],
    "server/config": [*VALUES, *WIRE, "server/base", "server/net"],  # the file is a protobuf message
}
BELOW_GRPC = [*VALUES, *WIRE, *SERVER]
SERVER |= {"server/grpc": BELOW_GRPC}
SERVER |= {
    "server/api": [*BELOW_GRPC, "server/grpc"],
    "server/oip": [*BELOW_GRPC, "server/grpc"],
    "server/telemetry": [*BELOW_GRPC, "server/grpc"],
    "server/trace": [*BELOW_GRPC, "server/grpc"],
}
SERVER |= {"server": [*SERVER, *VALUES, *WIRE, "kernels"]}

CLIENT = {
    "client": VALUES,  # public headers and their values
    "client/testing": [*VALUES, "client"],
    "client/common": [*VALUES, "client"],
    "client/shared": [*VALUES, "client", "client/common"],
    "client/inproc": [*VALUES, "client", "client/common", "kernels"],
    "client/grpc": [*VALUES, *WIRE, "client", "client/common", "client/shared"],
    "client/connect": [*VALUES, "client", "client/inproc", "client/grpc"],
    "client/cli": [*VALUES, "client", "kernels"],
    "client/examples": ["client"],
    "client/python/native": [*VALUES, "client", "client/inproc", "client/grpc"],
}

MAY_INCLUDE = KERNELS | {"generated": [], "proto": [*VALUES, "generated"]} | SERVER | CLIENT
ANYTHING = ["tests", "bench"]

# External library -> (pattern of the include, folders and files that may).
EXTERNAL = {
    "gRPC and protobuf": (
        r"(grpc|grpcpp|grpc\+\+|google/protobuf)/|.*\.pb\.h$",
        ["proto", "server", "server/grpc", "server/api", "server/oip", "server/config", "server/telemetry", "server/trace", "client/grpc", "client/cli"],
    ),
    "Highway": (r"hwy/", ["kernels/cpu"]),
    "CUDA": (r"(cuda|cub|nvrtc|cooperative_groups|thrust)", ["kernels/cuda"]),
    "Boost": (r"boost/", ["kernels/math", "kernels/plan"]),
    "nlohmann-json": (r"nlohmann/", ["kernels/base", "kernels/tensor", "server/base", "client/cli"]),
    "prometheus-cpp": (r"prometheus/", ["server/telemetry"]),
    "nanobind": (r"nanobind/", ["client/python/native"]),
    "CLI11": (r"CLI/", ["client/cli"]),
    "GoogleTest": (r"(gtest|gmock)/", ["client/testing"]),
    "Google Benchmark": (r"benchmark/", []),
}


def folder_of(path):
    """The entry of the tables that a file belongs to; None: not ours."""
    if path.startswith(("phasor/v1/", "phasor/config/", "inference/")):
        return "generated"
    folder = path.rsplit("/", 1)[0] if "/" in path else ""
    while folder and folder not in MAY_INCLUDE and folder not in ANYTHING:
        folder = folder.rsplit("/", 1)[0] if "/" in folder else ""
    return folder or None


def cycles():
    """The table has no cycle when every folder names only folders that stand before it."""
    before = []
    for folder, others in MAY_INCLUDE.items():
        yield from (f"tests/repo/layering.py: {folder} names {other}, which is not below it" for other in others if other not in before)
        before.append(folder)


def violations(tree):
    found = [*cycles()]
    for path, text in sources(tree).items():
        for quote, target, line in includes(text or ""):
            problem = _problem(path, folder_of(path), quote, target)
            if problem:
                found.append(f"{path}:{line}: includes {target}: {problem}")
    return found


def _problem(path, folder, quote, target):
    target_folder = folder_of(target)
    is_ours = quote == '"' and target_folder not in (None, "generated")
    for name, (include, allowed) in EXTERNAL.items():
        if not is_ours and re.match(include, target) and folder not in (*allowed, *ANYTHING):
            return f"{name} is for {', '.join(allowed) or 'tests'} only"
    if target.endswith(".cc"):
        return "a source is not a header"
    if target.endswith("-inl.h") and path.endswith(".h") and not path.endswith("-inl.h"):
        return "per-target code is for sources and tests"
    if target_folder is None or folder is None or folder in ANYTHING:
        if quote == '"' and "/" not in target:
            return "includes start at the repository root"
        return None
    if target_folder != folder and target_folder not in MAY_INCLUDE[folder]:
        return f"{folder} may include {MAY_INCLUDE[folder]}, not {target_folder}"
    return None
