# SPDX-License-Identifier: Apache-2.0
"""classes.py: finds, by source, every class of transformers that says rotary or rope, and says how each
was compared: a row for each class.

A class belongs to the model_types whose configurations it takes. Where one of these has an attention
layer that runs alone, that layer's rotation was compared in three types (model_parity.py); else what
the class computes for files of that model_type was (model_cases.py).
"""

import ast
import re

from by_hand import HINTED, NO_ROTATION, OTHER_CLASSES, REMEDIES
from upstream import SOURCES, config_classes, survey

SAYS_SO = re.compile(r"Rotary|RoPE|Rope")
COMPARED = ("layer in bf16, f16 and f32", "numbers of its files")


def found():
    """package.class of every such class."""
    trees = ((path.parent.name, ast.parse(path.read_text())) for path in sorted(SOURCES.glob("*/modeling_*.py")))
    return [f"{package}.{node.name}" for package, tree in trees for node in tree.body if isinstance(node, ast.ClassDef) and SAYS_SO.search(node.name)]


def users():
    """package.class -> the model_types whose configurations it takes."""
    types = {}
    for name, user in survey().items():
        for module, cls in user.rotary:
            types.setdefault(f"{module.split('.')[2]}.{cls}", set()).add(config_classes()[name].model_type)
    return types


def state(key, types, rows, layers):
    """How a class was compared, or what to do instead; empty where nobody has accounted for it."""
    ways = {COMPARED[0] if name in layers else COMPARED[1] for name in types if name in rows and "unread" not in rows[name]}
    if ways:
        return min(ways)
    for name in sorted(types):
        if name in HINTED or name in REMEDIES:
            return f"refused: {HINTED.get(name) or REMEDIES[name]}"
        if name in NO_ROTATION:
            return f"no rotation: {NO_ROTATION[name]}"
    return next((why for pattern, why in OTHER_CLASSES.items() if re.fullmatch(pattern, key)), "")


def report(data, layers):
    """Prints a row for each class and their sum. `layers`: model_types whose attention layer was compared.
    Returns what nobody has accounted for."""
    rows, types = {row["model_type"]: row for row in data["models"]}, users()
    states = {key: state(key, types.get(key, set()), rows, layers) for key in found()}
    for key, how in states.items():
        print(f"class {key:66}{', '.join(sorted(filter(None, types.get(key, [])))):60} {how}")
    count = [sum(how == way for how in states.values()) for way in COMPARED]
    refused, empty = sum(how.startswith("refused") for how in states.values()), [key for key, how in states.items() if not how]
    other = len(states) - sum(count) - refused - len(empty)
    print(
        f"transformers {data['transformers']}: {len(states)} rotary classes, a row for each: {count[0]} compared as layers in three types, {count[1]} by "
        f"their numbers, {other} no rotation of their own, {refused} refused with a remedy, unaccounted {len(empty)}"
    )
    return [f"{key}: found in transformers' source; add it to by_hand.py" for key in empty]
