#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rest.py [--check]: writes deploy/envoy/phasor.pb, from which Envoy's JSON transcoder knows the
services and their paths: the descriptors of the protos, with the HTTP rules below added as the
annotation google.api.http. --check: compares instead. Needs protoc (Debian 12's, for equal bytes)
and nothing else. docs/rest.md has the paths; ADR 32 says why the rules are not in the protos."""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "deploy/envoy/phasor.pb"
PROTOS = [
    "phasor/v1/position_embedding_service.proto",
    "phasor/v1/table_service.proto",
    "inference/grpc_service.proto",
    "grpc/health/v1/health.proto",
]
OURS, TABLES = "phasor.v1.PositionEmbeddingService", "phasor.v1.TableService"
OIP, HEALTH = "inference.GRPCInferenceService", "grpc.health.v1.Health"
# (service, method, HTTP method, paths). A POST has the request as its body, without what is in the
# path. A GET has the fields of the request in its query.
RULES = [
    (OURS, "Encode", "post", ["/v1/encode"]),
    (OURS, "ApplyRoPE", "post", ["/v1/apply-rope"]),
    (OURS, "BatchEncode", "post", ["/v1/batch-encode"]),
    (OURS, "BatchApplyRoPE", "post", ["/v1/batch-apply-rope"]),
    (OURS, "AttentionBias", "post", ["/v1/attention-bias"]),
    (OURS, "MoveKeys", "post", ["/v1/move-keys"]),
    (OURS, "ResolveSpec", "post", ["/v1/resolve-spec"]),
    (OURS, "ResolveModel", "post", ["/v1/resolve-model"]),
    (OURS, "ListPresets", "get", ["/v1/presets"]),
    (OURS, "GetServerInfo", "get", ["/v1/info"]),
    (TABLES, "ListTables", "get", ["/v1/tables"]),
    (HEALTH, "Check", "get", ["/v1/health"]),
    (OIP, "ServerLive", "get", ["/v2/health/live"]),
    (OIP, "ServerReady", "get", ["/v2/health/ready"]),
    (OIP, "ServerMetadata", "get", ["/v2"]),
    (OIP, "ModelReady", "get", ["/v2/models/{name}/ready", "/v2/models/{name}/versions/{version}/ready"]),
    (OIP, "ModelMetadata", "get", ["/v2/models/{name}", "/v2/models/{name}/versions/{version}"]),
    (OIP, "ModelConfig", "get", ["/v2/models/{name}/config", "/v2/models/{name}/versions/{version}/config"]),
    (OIP, "ModelStatistics", "get", ["/v2/models/stats", "/v2/models/{name}/stats", "/v2/models/{name}/versions/{version}/stats"]),
    (OIP, "ModelInfer", "post", ["/v2/models/{model_name}/infer", "/v2/models/{model_name}/versions/{model_version}/infer"]),
    (OIP, "RepositoryIndex", "post", ["/v2/repository/index"]),
]
# Numbers of fields: FileDescriptorSet.file; FileDescriptorProto.package, service;
# ServiceDescriptorProto.name, method; MethodDescriptorProto.name, options; the extension of
# MethodOptions; google.api.HttpRule.
FILE, PACKAGE, SERVICE, NAME, METHOD, OPTIONS, HTTP = 1, 2, 6, 1, 2, 4, 72295728
VERB, BODY, ADDITIONAL = {"get": 2, "post": 4}, 7, 11


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def fields(message):
    """(number, whole field, content) of each field; the content of a number is None."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        begin, tag = at, number()
        if tag & 7 == 0:
            number()
            yield tag >> 3, message[begin:at], None
        elif tag & 7 == 2:
            size = number()
            at += size
            yield tag >> 3, message[begin:at], message[at - size : at]
        else:
            raise ValueError(f"a descriptor has a field of wire type {tag & 7}")


def first(message, number):
    return next((content for n, _, content in fields(message) if n == number), b"").decode()


def changed(message, number, change):
    """The message with `change` made to the content of each field of that number."""
    return b"".join(field(n, change(content)) if n == number else whole for n, whole, content in fields(message))


def rule(verb, path):
    return field(VERB[verb], path.encode()) + (field(BODY, b"*") if verb == "post" else b"")


def with_rules(descriptors):
    left = {(service, method): (verb, paths) for service, method, verb, paths in RULES}

    def annotate(package):
        def of_service(service):
            def of_method(method):
                given = left.pop((f"{package}.{first(service, NAME)}", first(method, NAME)), None)
                if given is None:
                    return method
                verb, paths = given
                more = b"".join(field(ADDITIONAL, rule(verb, path)) for path in paths[1:])
                # Options that are there already and these are one message when they are read.
                return method + field(OPTIONS, field(HTTP, rule(verb, paths[0]) + more))

            return changed(service, METHOD, of_method)

        return of_service

    made = changed(descriptors, FILE, lambda file: changed(file, SERVICE, annotate(first(file, PACKAGE))))
    if left:
        raise ValueError(f"rules for methods that do not exist: {sorted(left)}")
    return made


def descriptors():
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(
            ["protoc", "-I", ROOT / "proto", "--include_imports", f"--descriptor_set_out={out.name}", *PROTOS], check=True
        )
        return pathlib.Path(out.name).read_bytes()


def main():
    made = with_rules(descriptors())
    if "--check" not in sys.argv:
        OUT.write_bytes(made)
    elif OUT.read_bytes() != made:
        sys.exit(f"{OUT.relative_to(ROOT)} is not what the protos and the rules give; run deploy/envoy/rest.py")


if __name__ == "__main__":
    main()
