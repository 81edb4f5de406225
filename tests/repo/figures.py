# SPDX-License-Identifier: Apache-2.0
"""Sentences of documents with numbers that can be counted in the data."""

import json

PRESETS = "kernels/spec/presets.json"
CONFIGS = "tests/conformance/configs/"


def sentences(tree):
    """(document, the sentence that it must have)"""
    presets = json.loads(tree[PRESETS])
    yield "README.md", f"{len(presets)} presets with their sources, {sum(preset['verified'] for preset in presets)} of them compared"
    yield "CHANGELOG.md", f"Presets for {len(presets)} models and conventions"

    golden, published, layers = (json.loads(tree[f"{CONFIGS}{name}.json"]) for name in ("golden", "published", "layers"))
    without, refused, otherwise = (sum(key in file for file in published) for key in ("unknown", "refused", "differs"))
    yield "docs/presets.md", f"compares {len(golden)} configurations"
    yield "tests/conformance/README.md", f"{len(golden)} configuration files"
    yield "docs/presets.md", f"{len(published)} public copies of models' files. {len(published) - without - refused - otherwise} are read as transformers reads them"
    yield "docs/presets.md", f"{otherwise} otherwise and {refused} is refused, with the reason; for {without} transformers has no rotary class"
    yield "docs/models.md", f"changed: {sum('layers' in file for file in layers)} files"


def violations(tree):
    return [f"{document}: does not say '{sentence}'" for document, sentence in sentences(tree) if sentence not in " ".join(tree[document].split())]
