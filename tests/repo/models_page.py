# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/models.md, made from kernels/spec/models.json and from what
tests/conformance/walk.py found. `models_page.py --fix` writes them; the check `presets` compares.
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "conformance"))
import by_hand  # noqa: E402  # after the path to it

DATA = "kernels/spec/models.json"
WALK = "tests/conformance/configs/walk.json"
DOCUMENT = "docs/models.md"
BEGIN = "<!-- models: begin -->\n"
END = "<!-- models: end -->"
MIDDLE = """
## diffusers and timm

`tests/conformance/walk.py` finds by source every class and function of both packages that concerns
positions. While a case is computed it notes what runs, so a row below means: this code ran, and its
numbers are those of the spec that tests/conformance/golden has under the name of the case.
A class that a later release adds fails `./dev conformance` until a case runs it or
tests/conformance/stays_out.py says why none does.
"""
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
    only = f"; rotates only with `{row['switch']['key']}` {json.dumps(row['switch']['value'])}" if "switch" in row else ""
    of_layers = [key for name in ("layer_lists", "period_keys", "pattern_keys") for key in row.get(name, [])]
    of_layers += [row[name] for name in ("kinds_key", "attention_list") if name in row]
    return names(dict.fromkeys(keys + of_layers)) + only


def what_instead(model_type):
    if reason := by_hand.NO_ROTATION.get(model_type):
        return f"nothing, {reason}"
    return (by_hand.HINTED | by_hand.REMEDIES)[model_type]


def table(data):
    rows = [row for row in data["models"] if "unread" not in row]
    lines = ["| model_type | pairs | base by default | axes | keys that it reads | PARITY: table, math | observed |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        pairs = PAIRS[row["pairing"], row.get("pairing_out", row["pairing"])] + (", turned backwards" if row.get("backwards") else "")
        lines.append(f"| `{row['model_type']}` | {pairs} | {base(row)} | {axes(row)} | {reads(row)} | {rounding(row)} | {row['observed']} |")
    unread = [row for row in data["models"] if "unread" in row and row["model_type"] not in data["parts"]]
    lines += ["", f"Of transformers {data['transformers']}: {len(rows)} model_types with a rotary embedding of their own,", f"{len(data['parts'])} composite ones with such a part."]
    lines += ["", "Not read from their files. The specs to give instead are compared with transformers' classes in tests/conformance/hf_towers.py:", ""]
    instead = {}
    for row in unread:
        instead.setdefault(what_instead(row["model_type"]), []).append(row["model_type"])
    lines += [f"- for {names(found)}: {what}." for what, found in instead.items()]
    lines += ["", "Composite: " + names(data["parts"]) + "."]
    return "\n".join(lines) + "\n"


def packages(walk):
    """What tests/conformance/walk.py found in diffusers and timm."""
    for package, part in walk.items():
        kinds = {}
        for key, (kind, what) in part["rows"].items():
            kinds.setdefault(kind, []).append((key, what))
        count = {kind: len(rows) for kind, rows in kinds.items()}
        yield f"\n### {package} {part['version']}\n"
        yield f"{len(part['rows'])} classes and functions: {count.get('compared', 0)} ran in a case and agree, {count.get('same source', 0)} have the source of one"
        yield f"that ran, {count.get('made of', 0)} are made of these, {count.get('no sine', 0)} have no sine (learned tables, projections),"
        yield f"{count.get('stays out', 0)} are no rotation and no encoding, {count.get('refused', 0)} are refused.\n"
        yield "| class or function | agrees in the cases |"
        yield "|---|---|"
        yield from (f"| `{key}` | {what} |" for key, what in kinds.get("compared", []))
        yield from (f"| `{key}` | the source of `{what}` |" for key, what in kinds.get("same source", []))
        reasons = {}
        for key, what in kinds.get("refused", []) + kinds.get("stays out", []):
            reasons.setdefault(what, []).append(key)
        yield ""
        yield from (f"- {names(keys)}: {what}." for what, keys in reasons.items())


def page(tree):
    return table(json.loads(tree[DATA])) + MIDDLE + "\n".join(packages(json.loads(tree[WALK]))) + "\n"


def violations(tree):
    document = tree.get(DOCUMENT) or ""
    wanted = BEGIN + page(tree) + END
    return [] if wanted in document else [f"{DOCUMENT}: differs from {DATA} or {WALK}; run tests/repo/models_page.py --fix"]


if __name__ == "__main__":
    root = pathlib.Path(__file__).parents[2]
    document = root / DOCUMENT
    before, rest = document.read_text().split(BEGIN)
    if "--fix" in sys.argv:
        tree = {name: (root / name).read_text() for name in (DATA, WALK)}
        document.write_text(before + BEGIN + page(tree) + END + rest.split(END)[1])
