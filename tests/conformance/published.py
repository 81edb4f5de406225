# SPDX-License-Identifier: Apache-2.0
"""published.py: computes published configurations with transformers.

configs/published.json has facts of well-known models: the keys of their config.json that concern
rotation, each with the public copy that it was read from. This adds what transformers' own rotary
embedding computes for them, per kind of layers: the angle of a unit of position of some pairs, and
the amplitude. published_test.cc compares. A model for which transformers has no rotary class has
`unknown`; `known_here` if Phasor reads it all the same. What Phasor refuses has the reason in
`refused`, and what it reads differently in `differs`.
"""

import json

from transformers import CONFIG_MAPPING

from case import ROOT, float32, sample
from upstream import attribute, frequencies, kinds_of, rotary_module, survey

PUBLISHED = ROOT / "configs" / "published.json"


def upstream_config(fields):
    """The configuration of the language model, as transformers reads the file."""
    config = CONFIG_MAPPING[fields["model_type"]](**json.loads(json.dumps(fields)))
    config = config.get_text_config()
    config._attn_implementation = "eager"
    return config


def numbers(fields):
    """Kind of layers ("": all) -> what upstream computes."""
    config = upstream_config(fields)
    user = survey()[type(config).__name__]
    found = {}
    for module, name in user.rotary:
        rotary = rotary_module(module, name, config)
        values = frequencies(rotary)
        listed = attribute(config, "layer_types") or []
        for kind in kinds_of(rotary):
            angles = values[f"{kind}_inv_freq" if kind else "inv_freq"]
            turning = sum(angle != 0 for angle in angles)
            chosen = sample(turning, 4, [])
            entry = {"pairs": turning, "pair": chosen, "angle": [float32(angles[j]) for j in chosen]}
            entry["amplitude"] = float32(values.get(f"{kind}_attention_scaling" if kind else "attention_scaling", 1.0))
            if not kind or not listed or kind in listed or not set(kinds_of(rotary)) & set(listed):
                found[kind or ""] = entry
        break
    return found


def computed(model):
    facts = {key: value for key, value in model.items() if key in ("name", "from", "path", "given", "config", "refused", "known_here", "differs")}
    try:
        return facts | {"kinds": numbers(model["config"])}
    except Exception as error:  # noqa: BLE001  # whatever it raises: transformers cannot run the file
        return facts | {"unknown": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}
