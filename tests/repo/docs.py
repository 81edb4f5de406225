# SPDX-License-Identifier: Apache-2.0
"""Checks that documents name only existing files, in links and in paths in `code`, and that the index
of the decisions lists all of them."""

import os
import re

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"`([^`\n]+)`")
INDEX = "docs/adr/README.md"
# Folders that a document may name a path in. build/ is made, not kept.
FOLDERS = ("proto", "kernels", "server", "client", "deploy", "tests", "bench", "cmake", "docs", ".ci")
PATH = re.compile(rf"^(?:\./)?((?:{'|'.join(re.escape(f) for f in FOLDERS)})/[\w./*{{}},+-]*|[A-Z][\w]*\.md|Dockerfile|CMake\w+\.\w+)$")


def violations(tree):
    folders = {os.path.dirname(p) for p in tree}
    folders |= {"/".join(f.split("/")[:n]) for f in folders for n in range(1, f.count("/") + 1)}
    found = []
    for document, text in tree.items():
        if document.endswith(".md"):
            for number, line in enumerate((text or "").split("\n"), 1):
                for target in _targets(document, line):
                    if target not in tree and target.rstrip("/") not in folders:
                        found.append(f"{document}:{number}: names {target}, which does not exist")
    return found + [f"{INDEX}: lacks the line {line}" for line in _decisions(tree) if line not in (tree.get(INDEX) or "").split("\n")]


def _decisions(tree):
    """A line of the index for each decision: its number and title, as its page has them."""
    for path, text in tree.items():
        if re.match(r"docs/adr/\d+-", path):
            title = text.split("\n")[0].removeprefix("# ")
            yield f"- [{title}]({os.path.basename(path)})"


def _targets(document, line):
    for link in LINK.findall(line):
        if "://" not in link and not link.startswith("mailto:"):
            yield os.path.normpath(os.path.join(os.path.dirname(document), link))
    for code in CODE.findall(line):
        match = PATH.match(code)
        if match and not re.search(r"[*<>]|\bX\b|\bY\b|NNNN", match[1]):
            yield from _expand(match[1])


def _expand(path):
    """a/{b,c}.h -> a/b.h, a/c.h."""
    match = re.search(r"\{([^}]*)\}", path)
    if not match:
        yield path
        return
    for choice in match[1].split(","):
        yield from _expand(path[: match.start()] + choice + path[match.end() :])
