# SPDX-License-Identifier: Apache-2.0
"""The reference of our protocols: a page of Markdown for each .proto file, from what protoc says of it and its comments."""

import pathlib
import re
import subprocess
import tempfile

from google.protobuf import descriptor_pb2

FOLDERS = ("phasor/v1", "phasor/config/v1")
FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {number: name.removeprefix("TYPE_").lower() for name, number in FIELD.Type.items()}


def pages(root):
    """Path in the site -> Markdown."""
    files = sorted(str(path.relative_to(root / "proto")) for folder in FOLDERS for path in (root / "proto" / folder).glob("*.proto"))
    described = [file for file in _describe(root, files).file if file.name in files]
    where = {}  # full name of a type -> page
    for file in described:
        _note_types(f".{file.package}", file.message_type, file.enum_type, _page(file.name), where)
    found = {_page(file.name): File(file, where).markdown() for file in described}
    found["reference/protocol.md"] = _overview(described)
    return found


def _describe(root, files):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "set")
        subprocess.run(["protoc", f"-I{root / 'proto'}", "--include_source_info", "--include_imports",
                        f"--descriptor_set_out={out}", *files], check=True)  # fmt: skip
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def _page(name):
    return f"reference/{name.removesuffix('.proto').replace('/', '.')}.md"


def _note_types(scope, messages, enums, page, where):
    for enum in enums:
        where[f"{scope}.{enum.name}"] = page
    for message in messages:
        where[f"{scope}.{message.name}"] = page
        _note_types(f"{scope}.{message.name}", message.nested_type, message.enum_type, page, where)


def _overview(files):
    lines = ["# Protocol", "", "Every service, message and field of `phasor.v1`, and the configuration file of the server, from",
             "the comments of the `.proto` files.", "", "| File | What it holds |", "|---|---|"]  # fmt: skip
    for file in files:
        page = _page(file.name).removeprefix("reference/")
        services = ", ".join(f"[{service.name}]({page}#{_id(f'.{file.package}.{service.name}')})" for service in file.service)
        about = File(file, {}).comment(2).split("\n\n")[0]
        lines.append(f"| [{file.name}]({page}) | {cell(about)}{'<br>Services: ' * bool(services)}{services} |")
    return "\n".join(lines) + "\n"


def _id(full_name):
    return full_name.lstrip(".")


def cell(text):
    """Text in a cell of a table."""
    text = escaped(text).replace("|", "\\|")
    return re.sub(r"\n+", " ", re.sub(r"\n\s*\n", "<br>", text)).strip()


def escaped(text):
    """A comment as Markdown: what stands in `code` stays, angle brackets elsewhere are no HTML."""
    parts = re.split(r"(`[^`\n]*`|\bdocs/[\w/.-]+\.md\b)", text)
    return "".join(_piece(part) for part in parts)


def _piece(part):
    if part.startswith("`"):
        return part
    return f"[{part}](../{part})" if re.fullmatch(r"docs/[\w/.-]+\.md", part) else re.sub(r"([*_<])", r"\\\1", part)


class File:
    def __init__(self, file, where):
        self.file, self.where = file, where
        self.comments = {tuple(place.path): _text(place) for place in file.source_code_info.location}
        self.lines = []

    def comment(self, *path):
        return self.comments.get(path, "")

    def markdown(self):
        self._say(f"# {self.file.name}", f"`package {self.file.package};`", escaped(self.comment(2)))
        scope = f".{self.file.package}"
        for number, service in enumerate(self.file.service):
            self._service(f"{scope}.{service.name}", service, (6, number))
        for number, message in enumerate(self.file.message_type):
            self._message(f"{scope}.{message.name}", message, (4, number))
        for number, enum in enumerate(self.file.enum_type):
            self._enum(f"{scope}.{enum.name}", enum, (5, number))
        return "\n".join(self.lines)

    def _say(self, *paragraphs):
        for paragraph in paragraphs:
            if paragraph:
                self.lines += [paragraph, ""]

    def _head(self, kind, full_name, path):
        name = full_name.removeprefix(f".{self.file.package}.")
        self._say(f"## {kind} {name} {{#{_id(full_name)}}}", escaped(self.comment(*path)))

    def _service(self, full_name, service, path):
        self._head("service", full_name, path)
        rows = ["| Call | Request | Answer | What it does |", "|---|---|---|---|"]
        for number, method in enumerate(service.method):
            streams = ("stream " * method.client_streaming, "stream " * method.server_streaming)
            rows.append(f"| `{method.name}` | {streams[0]}{self._link(method.input_type)} | {streams[1]}"
                        f"{self._link(method.output_type)} | {cell(self.comment(*path, 2, number))} |")  # fmt: skip
        self._say("\n".join(rows))

    def _message(self, full_name, message, path):
        if message.options.map_entry:
            return
        self._head("message", full_name, path)
        rows = ["| Field | Type | No. | What it says |", "|---|---|---|---|"]
        for number, field in enumerate(message.field):
            rows.append(f"| `{field.name}` | {self._type(field, message)} | {field.number} | {cell(self.comment(*path, 2, number))} |")
        self._say("\n".join(rows) if message.field else "It has no fields.")
        for number, nested in enumerate(message.nested_type):
            self._message(f"{full_name}.{nested.name}", nested, (*path, 3, number))
        for number, enum in enumerate(message.enum_type):
            self._enum(f"{full_name}.{enum.name}", enum, (*path, 4, number))

    def _enum(self, full_name, enum, path):
        self._head("enum", full_name, path)
        rows = ["| Value | No. | What it says |", "|---|---|---|"]
        for number, value in enumerate(enum.value):
            rows.append(f"| `{value.name}` | {value.number} | {cell(self.comment(*path, 2, number))} |")
        self._say("\n".join(rows))

    def _type(self, field, message):
        kind = self._link(field.type_name) if field.type_name else SCALARS[field.type]
        entry = next((m for m in message.nested_type if m.options.map_entry and field.type_name.endswith(f".{message.name}.{m.name}")), None)
        if entry:
            return f"map of {self._type(entry.field[0], entry)} to {self._type(entry.field[1], entry)}"
        if field.proto3_optional:
            return f"optional {kind}"
        if field.HasField("oneof_index"):
            return f"{kind}, one of `{message.oneof_decl[field.oneof_index].name}`"
        return f"repeated {kind}" if field.label == FIELD.LABEL_REPEATED else kind

    def _link(self, full_name):
        short = full_name.removeprefix(f".{self.file.package}").lstrip(".")
        page = self.where.get(full_name)
        if page is None:
            return f"`{short}`"
        return f"[{short}]({page.removeprefix('reference/')}#{_id(full_name)})"


def _text(place):
    comments = [*place.leading_detached_comments, place.leading_comments, place.trailing_comments]
    comments = [text for text in comments if not text.startswith(" SPDX")]
    return re.sub(r"(?m)^ ", "", "\n".join(comments)).strip()
