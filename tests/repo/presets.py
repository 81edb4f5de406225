# SPDX-License-Identifier: Apache-2.0
"""Checks that docs/presets.md lists every preset and its published copies, and docs/models.md every
model_type, as the data has them. `presets.py --fix` writes the list of copies."""

import json
import pathlib
import re
import sys

import models_page

DATA = "kernels/spec/presets.json"
SOURCES = "tests/conformance/configs/preset_sources.json"
DOCUMENT = "docs/presets.md"
BEGIN, END = "<!-- copies: begin -->\n", "<!-- copies: end -->"
ROW = re.compile(r"^\| `([a-z0-9.-]+)` \|.*\|$", re.MULTILINE)


def row(preset):
    given = ", ".join(f"`{field}`" for field in preset["required"])
    length = preset["context_length"] or ""
    summary = preset["summary"].replace("|", "\\|")
    return f"| `{preset['name']}` | {summary} | {given} | {length} | {'yes' if preset['verified'] else '**no**'} |"


def copies(tree):
    """Which presets were derived from public copies of their models' files, and which not, and why."""
    files, why = {}, {}
    for entry in json.loads(tree[SOURCES]):
        name = entry["preset"]
        files[name] = files.get(name, 0) + len(entry.get("published", [entry]))
        if "why" in entry:
            why.setdefault(entry["why"], []).append(name)
    known = [name for name in sorted(files) if files[name]]
    lines = ["| preset | copies |", "|---|---|"] + [f"| {name} | {files[name]} |" for name in known]
    lines += ["", "Not compared with a copy that is named here, and what they have instead:", ""]
    lines += [f"- {reason}: {', '.join(f'`{name}`' for name in names)}" for reason, names in sorted(why.items())]
    return BEGIN + "\n".join(lines) + "\n" + END


def violations(tree):
    document = tree.get(DOCUMENT) or ""
    presets = json.loads(tree[DATA])
    rows = [match[0] for match in ROW.finditer(document)]
    wanted = [row(preset) for preset in presets]
    found = [f"{DOCUMENT}: lacks the row {line}" for line in wanted if line not in rows]
    names = {preset["name"] for preset in presets}
    found += [f"{DOCUMENT}: a preset that {DATA} has not, or has differently: {line}" for line in rows if line not in wanted]
    found += [f"{DOCUMENT}: `{name}` has two rows" for name in names if sum(r.startswith(f"| `{name}` |") for r in rows) > 1]
    if copies(tree) not in document:
        found.append(f"{DOCUMENT}: differs from {SOURCES}; run tests/repo/presets.py --fix")
    return found + models_page.violations(tree)


if __name__ == "__main__":
    root = pathlib.Path(__file__).parents[2]
    document = root / DOCUMENT
    before, rest = document.read_text().split(BEGIN)
    if "--fix" in sys.argv:
        document.write_text(before + copies({SOURCES: (root / SOURCES).read_text()}) + rest.split(END)[1])
