# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/models.md, made from kernels/spec/models.json. `models_page.py --fix` writes
them; the check `presets` compares.
"""

import json
import pathlib
import sys

DATA = "kernels/spec/models.json"
DOCUMENT = "docs/models.md"
BEGIN = "<!-- models: begin -->\n"
END = "<!-- models: end -->"
PAIRS = {("HALF_SPLIT", "HALF_SPLIT"): "half-split", ("INTERLEAVED", "INTERLEAVED"): "neighbours", ("BLOCK_HALF_SPLIT", "BLOCK_HALF_SPLIT"): "half-split in blocks", ("INTERLEAVED", "HALF_SPLIT"): "neighbours in, half-split out"}


def names(values):
    return ", ".join(f"`{value}`" for value in values)


def number(value):
    return f"{value:.0f}" if value == int(value) else f"{value}"


def base(row):
    kinds = row.get("kinds", [row])
    return ", ".join(f"{k['name']}: {number(k['theta'])}" if k.get("name") else number(k["theta"]) for k in kinds)


def axes(row):
    if "mrope_section" in row:
        return f"{row['axis_rule']} {row['mrope_section']}"
    return f"{row['axis_rule']} ({', '.join(row['axes'])})" if "axes" in row else ""


def rounding(row):
    return " ".join(row["parity"][2:]) if "parity" in row else ""


def reads(row):
    keys = []
    for kind in row.get("kinds", [row]):
        latent = ["qk_nope_head_dim", "qk_rope_head_dim"] if kind.get("latent") else []
        keys += [*kind.get("theta_keys", []), *kind.get("partial_keys", []), *(latent or kind.get("head_dim_keys", []))]
    return names(dict.fromkeys(keys + row.get("layer_lists", [])))


def table(data):
    rows = [row for row in data["models"] if "unread" not in row]
    lines = ["| model_type | pairs | base by default | axes | keys that it reads | PARITY: table, math | observed |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        pairs = PAIRS[row["pairing"], row.get("pairing_out", row["pairing"])] + (", turned backwards" if row.get("backwards") else "")
        lines.append(f"| `{row['model_type']}` | {pairs} | {base(row)} | {axes(row)} | {reads(row)} | {rounding(row)} | {row['observed']} |")
    unread = [row for row in data["models"] if "unread" in row and row["model_type"] not in data["parts"]]
    lines += ["", f"Of transformers {data['transformers']}: {len(rows)} model_types with a rotary embedding of their own,", f"{len(data['parts'])} composite ones with such a part."]
    lines += ["", "Not read, so `pairing` is needed: " + names(row["model_type"] for row in unread) + "."]
    lines += ["", "Composite: " + names(data["parts"]) + "."]
    return "\n".join(lines) + "\n"


def violations(tree):
    document = tree.get(DOCUMENT) or ""
    wanted = BEGIN + table(json.loads(tree[DATA])) + END
    return [] if wanted in document else [f"{DOCUMENT}: differs from {DATA}; run tests/repo/models_page.py --fix"]


if __name__ == "__main__":
    root = pathlib.Path(__file__).parents[2]
    page = root / DOCUMENT
    before, rest = page.read_text().split(BEGIN)
    if "--fix" in sys.argv:
        page.write_text(before + BEGIN + table(json.loads((root / DATA).read_text())) + END + rest.split(END)[1])
