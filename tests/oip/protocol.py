# SPDX-License-Identifier: Apache-2.0
"""Compares our copy of the protocol with the one in tritonclient. Every message, field number, type
and method of ours must be in theirs, and the other way round, except for parts of configurations
that this server never sets."""

import subprocess
import tempfile

from google.protobuf import descriptor_pb2

# The protocol has it, Triton does not.
OURS_ALONE = {"inference.ModelMetadataResponse.properties", "inference.ModelMetadataResponse.PropertiesEntry"}


def ours(root):
    with tempfile.NamedTemporaryFile() as out:
        command = ["protoc", "-I", "proto", "--include_imports", "-o", out.name, "proto/inference/grpc_service.proto"]
        subprocess.run(command, cwd=root, check=True, timeout=60)
        return list(descriptor_pb2.FileDescriptorSet.FromString(out.read()).file)


def theirs():
    from tritonclient.grpc import model_config_pb2, service_pb2

    files = []
    for module in (model_config_pb2, service_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        files.append(file)
    return files


def facts(files):
    """{full name: what it is} of every message, field, enumerator and method."""
    found = {}
    for file in files:
        for message in file.message_type:
            _message(f"{file.package}.{message.name}", message, found)
        for enum in file.enum_type:
            found.update({f"{file.package}.{enum.name}.{v.name}": v.number for v in enum.value})
        for service in file.service:
            for m in service.method:
                found[f"{service.name}/{m.name}"] = (m.input_type, m.output_type, m.client_streaming, m.server_streaming)
    return found


def _message(name, message, found):
    found[name] = "message"
    for f in message.field:
        oneof = message.oneof_decl[f.oneof_index].name if f.HasField("oneof_index") else ""
        found[f"{name}.{f.name}"] = (f.number, f.type, f.type_name, f.label, oneof)
    for nested in message.nested_type:
        _message(f"{name}.{nested.name}", nested, found)


def differences(root):
    mine, upstream = facts(ours(root)), facts(theirs())
    wrong = [f"{name}: {fact}, upstream {upstream.get(name)}" for name, fact in mine.items() if upstream.get(name) != fact]
    wrong = [w for w in wrong if not any(w.startswith(alone) for alone in OURS_ALONE)]
    service = facts(theirs()[1:])
    missing = [name for name in service if name not in mine]
    return wrong, missing
