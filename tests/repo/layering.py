# SPDX-License-Identifier: Apache-2.0
"""Who may include whom. ARCHITECTURE.md says why; this table is the rule."""

import re

from tree import includes, sources

# Layer -> the files in it; the first match wins.
LAYERS = {
    "tests": r"(tests|bench)/",
    "client_testing": r"client/testing/",
    "quickstart": r"client/(quickstart|examples)/",
    "cli": r"client/cli/",
    "client_internal": r"client/internal/",
    "client": r"client/",
    "oip": r"server/oip/",
    "rpc": r"server/rpc/",
    "engine": r"server/engine/",
    "regions": r"server/regions/",
    "security": r"server/security/",
    "tables": r"server/tables/",
    "config": r"server/config/",
    "telemetry": r"server/telemetry/",
    "server_rpc_glue": r"server/((server\w*|main|listener\w*|admin_server|stream_watch)\.cc|(grpc_server|server_security)\.h|grpc_server\.cc)$",
    "server": r"server/",
    "proto": r"proto/",
    "cuda": r"kernels/cuda/",
    "cpu": r"kernels/cpu/",
    "reference": r"kernels/reference/",
    "backends": r"kernels/backends\.(h|cc)$",
    "kernels": r"kernels/",
}

# Layer -> the layers it may include beside its own. Tests may include everything.
MAY_INCLUDE = {
    "kernels": set(),
    "reference": {"kernels"},
    "cpu": {"kernels", "reference"},  # what SIMD does not do falls back to the definition
    "cuda": {"kernels"},
    "backends": {"kernels", "reference", "cpu", "cuda"},
    "engine": {"kernels", "backends"},
    "regions": {"kernels", "engine"},
    "security": {"kernels", "engine", "server"},
    "tables": {"kernels"},
    "proto": {"kernels", "generated"},
    "rpc": {"kernels", "backends", "engine", "regions", "security", "tables", "proto", "generated"},
    "oip": {"kernels", "backends", "engine", "regions", "proto", "generated", "rpc"},
    "server_rpc_glue": {"kernels", "backends", "engine", "regions", "security", "tables", "proto", "generated", "rpc", "oip", "config", "telemetry", "server"},
    "config": {"kernels", "proto", "generated", "server"},  # the file is a protobuf message
    "telemetry": {"kernels", "engine", "rpc", "security", "server"},
    "server": {"kernels", "backends"},
    "client": {"kernels", "backends", "client_internal"},
    "client_internal": {"kernels", "backends", "proto", "generated", "client"},
    "client_testing": {"kernels", "client"},
    "cli": {"kernels", "backends", "client"},
    "quickstart": {"client"},
}

# A layer's public face may show less than its sources may use.
HEADERS_MAY_NOT_INCLUDE = {"client": {"client_internal", "proto", "generated"}}

# External library -> (pattern of the include, pattern of the files that may).
EXTERNAL = {
    "gRPC and protobuf": (
        r"(grpc|grpcpp|grpc\+\+|google/protobuf)/|.*\.pb\.h$",
        r"proto/|server/rpc/|server/oip/|server/config/|server/((server\w*|listener\w*|admin_server|stream_watch)\.cc|(grpc_server|server_security)\.h|grpc_server\.cc)$|client/internal/|client/cli/|tests/|bench/",
    ),
    "Highway": (r"hwy/", r"kernels/cpu/|tests/kernels/cpu/"),
    "CUDA": (r"(cuda|cub|nvrtc|cooperative_groups|thrust)", r"kernels/cuda/|tests/kernels/cuda/|bench/cuda/"),
    "Boost": (r"boost/", r"kernels/(frequencies\w*\.(cc|h)|parity/elementary\.cc)$|tests/|bench/"),
    "nlohmann-json": (r"nlohmann/", r"kernels/(json\.h|safetensors\.cc)$|server/log\.cc$|client/cli/|tests/|bench/"),
    "prometheus-cpp": (r"prometheus/", r"server/telemetry/|tests/"),
    "CLI11": (r"CLI/", r"server/options\.cc$|server/main\.cc$|client/cli/"),
    "GoogleTest": (r"(gtest|gmock)/", r"tests/|client/testing/"),
    "Google Benchmark": (r"benchmark/", r"bench/"),
}


def layer_of(path):
    if path.startswith(("phasor/v1/", "phasor/config/", "inference/")):
        return "generated"
    return next((name for name, pattern in LAYERS.items() if re.match(pattern, path)), None)


def violations(tree):
    found = []
    for path, text in sources(tree).items():
        layer = layer_of(path)
        for quote, target, line in includes(text or ""):
            problem = _problem(path, layer, quote, target)
            if problem:
                found.append(f"{path}:{line}: includes {target}: {problem}")
    return found


def _problem(path, layer, quote, target):
    for name, (include, allowed) in EXTERNAL.items():
        is_ours = quote == '"' and layer_of(target) not in (None, "generated")
        if not is_ours and re.match(include, target) and not re.match(allowed, path):
            return f"{name} is for {allowed} only"
    if target.endswith(".cc"):
        return "a source is not a header"
    if target.endswith("-inl.h") and path.endswith(".h") and not path.endswith("-inl.h"):
        return "per-target code is for sources and tests"
    target_layer = layer_of(target)
    if target_layer is None or layer in (None, "tests"):
        if quote == '"' and "/" not in target and not target.startswith("absl"):
            return "includes start at the repository root"
        return None
    if target_layer != layer and target_layer not in MAY_INCLUDE[layer]:
        return f"{layer} may include {sorted(MAY_INCLUDE[layer] | {layer})}, not {target_layer}"
    if path.endswith(".h") and target_layer in HEADERS_MAY_NOT_INCLUDE.get(layer, ()):
        return f"public headers of {layer} do not show {target_layer}"
    return None
