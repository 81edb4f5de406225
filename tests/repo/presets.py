# SPDX-License-Identifier: Apache-2.0
"""Checks that docs/presets.md lists every preset, and docs/models.md every model_type, as the data
has them."""

import json
import re

import models_page

DATA = "kernels/spec/presets.json"
DOCUMENT = "docs/presets.md"
ROW = re.compile(r"^\| `([a-z0-9.-]+)` \|.*\|$", re.MULTILINE)


def row(preset):
    given = ", ".join(f"`{field}`" for field in preset["required"])
    length = preset["context_length"] or ""
    summary = preset["summary"].replace("|", "\\|")
    return f"| `{preset['name']}` | {summary} | {given} | {length} | {'yes' if preset['verified'] else '**no**'} |"


def violations(tree):
    document = tree.get(DOCUMENT) or ""
    presets = json.loads(tree[DATA])
    rows = [match[0] for match in ROW.finditer(document)]
    wanted = [row(preset) for preset in presets]
    found = [f"{DOCUMENT}: lacks the row {line}" for line in wanted if line not in rows]
    names = {preset["name"] for preset in presets}
    found += [f"{DOCUMENT}: a preset that {DATA} has not, or has differently: {line}" for line in rows if line not in wanted]
    found += [f"{DOCUMENT}: `{name}` has two rows" for name in names if sum(r.startswith(f"| `{name}` |") for r in rows) > 1]
    return found + models_page.violations(tree)
