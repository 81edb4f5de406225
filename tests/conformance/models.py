# SPDX-License-Identifier: Apache-2.0
"""models.py: makes kernels/spec/models.json, what a config.json leaves to the model's code.

Every row is observed. upstream.py shows which lanes the model's attention layer pairs. Trying keys
shows which of them change the frequencies of its rotary embedding, each alone and beside a
rope_scaling.
"""

import itertools
import json
import pathlib
import sys

import transformers

from by_hand import AXES, BY_HAND, NEEDED, NO_ROTATION, READ, REMEDIES
from case import of_each
from rounding import rounding
from upstream import TABLE, attribute, config_classes, configuration, frequencies, kinds_of, observe, rotary_module, rotates, survey, table_rows

THETA = ("rope_theta", "rotary_emb_base", "rotary_embedding_base", "rope_local_base_freq", "global_rope_theta", "local_rope_theta", "swa_rope_theta", "compress_rope_theta")
PARTIAL = ("partial_rotary_factor", "rotary_pct", "rotary_dim")
WIDTH = ("head_dim", "global_head_dim", "swa_head_dim", "kv_channels", "attention_head_dim")
HIDDEN = ("hidden_size", "embed_dim", "n_embd", "d_model", "projection_dim")
HEADS = ("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads", "speech_encoder_attention_heads")
PATTERN = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers", "full_attention_interval", "attn_layer_period")
PATTERN += ("attn_layer_offset", "first_k_dense_replace", "prefix_dense_sliding_window_pattern", "hybrid_override_pattern", "layer_group_size")
LINEAR = {"rope_type": "linear", "factor": 2.0}
BASE = 23456.0
BASES = (BASE, int(BASE))  # some classes take whole numbers only


class Model:
    """One configuration class, asked by trying."""

    def __init__(self, name, without=()):
        self.cls = config_classes()[name]
        self.needed = {k: v for k, v in NEEDED.get(self.cls.model_type, {}).items() if k not in without}
        self.asked = {}
        for self.module, self.rotary in survey()[name].rotary:
            if self.ask({}):
                break

    def config(self, fields):
        return configuration(self.cls, self.needed | fields)

    def ask(self, fields):
        """The numbers of the rotary embedding, or None where upstream refuses."""
        key = json.dumps(fields)
        if key not in self.asked:
            try:
                self.asked[key] = frequencies(rotary_module(self.module, self.rotary, self.config(fields)))
            except Exception:  # noqa: BLE001  # whatever it raises is a refusal
                self.asked[key] = None
        return self.asked[key]

    def changed(self, fields, beside=None):
        """The kinds of layers ("": of all) whose frequencies `fields` change; none where upstream refuses."""
        new, old = self.ask((beside or {}) | fields), self.ask(beside or {})
        if new is None or old is None:
            return []
        return sorted({k.removesuffix("inv_freq").removesuffix("_") for k in new | old if new.get(k) != old.get(k) and k.endswith("inv_freq")})

    def reads(self, keys, values, kind, beside=None):
        """The keys that change the frequencies. Of the values to try, upstream may refuse some."""
        return [key for key in keys if any(kind in self.changed({key: value}, beside) for value in values(key))]

    def integer(self, key):
        value = attribute(self.config({}), key)
        return value if isinstance(value, int) else None


def axis_names(model_type, axes):
    """What the model calls the axes of its positions, in their order."""
    return AXES.get(model_type) or (["time", "row", "column"] if axes == 3 else ["row", "column"])


def axis_fields(seen, rotary, model_type):
    """The fields that say which axis turns which pair."""
    axis = [max(range(seen.axes), key=lambda a: abs(p.angle[a])) for p in seen.pairs]
    section = getattr(rotary, "mrope_section", None)
    section = list(next(iter(section.values())) if isinstance(section, dict) else section or [])
    if section:
        rules = {
            "MROPE_CHUNKED": [a for a, s in enumerate(section) for _ in range(s)],
            "MROPE_INTERLEAVED": [j % 3 if j < 3 * section[j % 3] else 0 for j in range(len(axis))],
            "MROPE_ALTERNATING": [1 + j % 2 if j < section[0] + section[1] else 0 for j in range(len(axis))],
        }
        return {"axis_rule": next(rule for rule, expected in rules.items() if expected == axis), "mrope_section": section}
    runs = [(a, len(list(g))) for a, g in itertools.groupby(axis)]
    if len(runs) == 1:
        raise ValueError("the probe moves one axis only")
    order = list(dict.fromkeys(axis))
    angles = [abs(p.angle[a]) for p, a in zip(seen.pairs, axis, strict=True)]
    names = axis_names(model_type, seen.axes)
    found = {"axes": [names[a] for a in order]}
    if len(runs) == len(order):
        dealt = abs(angles[runs[0][1]] - angles[0]) > 1e-3  # one ladder for all axes, its pairs dealt out
        return found | {"axis_rule": "AXIAL"} | ({"dealt": True} if dealt else {})
    return found | {"axis_rule": "FREQUENCY_MAJOR" if angles[0] == angles[1] else "LIST"}


def pairing_fields(seen, source):
    if seen is None:
        lanes, _, out = source.partition(">")
        return {"pairing": lanes} | ({"pairing_out": out} if out else {})
    def named(lanes):
        (distance,) = {second - first for first, second in lanes}
        blocks = seen.axes > 1 and distance * seen.axes == len(lanes)
        return "INTERLEAVED" if distance == 1 else "BLOCK_HALF_SPLIT" if blocks else "HALF_SPLIT"

    lanes, out = named([pair.lanes for pair in seen.pairs]), named([pair.out for pair in seen.pairs])
    fields = {"pairing": lanes} | ({"pairing_out": out} if out != lanes else {})
    return fields | ({"backwards": True} if max(seen.pairs[0].angle, key=abs) < 0 else {})


def widths(model, key):
    """Widths of a head to try."""
    given = model.integer(key) or 128
    return [given + 32, given // 2]


def width_fields(model, kind, head):
    """Which keys give the width of a head, and what the class has without them."""
    fields = {}
    if named := model.reads(WIDTH, lambda key: widths(model, key), kind):
        fields["head_dim_keys"] = named
    hidden = model.reads([k for k in HIDDEN if model.integer(k)], lambda key: [model.integer(key) * 2], kind)
    heads = model.reads([k for k in HEADS if model.integer(k)], lambda key: [max(1, model.integer(key) // 2)], kind)
    if heads:
        hidden = hidden or [k for k in HIDDEN if model.integer(k)][:1]
    if heads and hidden:
        times = head * model.integer(heads[0]) // model.integer(hidden[0])
        fields |= {"hidden_times": times} if times > 1 else {}
        fields |= {"hidden": model.integer(hidden[0]), "hidden_keys": hidden, "heads": model.integer(heads[0]), "heads_keys": heads}
    else:
        fields["head_dim"] = model.integer("head_dim") or head
    return fields


def base_fields(model, kind, name):
    """Base and scaling of one kind of layers ("": of all)."""
    rope = attribute(model.config({}), "rope_parameters") or {}
    own = dict((rope.get(name) if name else rope) or {})
    fields = {"theta": own.get("rope_theta") or attribute(model.config({}), "rope_theta") or 10000.0}
    fields["theta_keys"] = model.reads(THETA, lambda _: BASES, kind)
    beside = model.reads(THETA, lambda _: BASES, kind, {"rope_scaling": LINEAR})
    if not fields["theta_keys"] and beside:
        fields |= {"theta_keys": beside, "only_beside_scaling": True}
    within = attribute(model.config({"rope_scaling": LINEAR}), "rope_parameters") if model.ask({"rope_scaling": LINEAR}) else None
    base = ((within or {}).get(name, {}) if name else within or {}).get("rope_theta")
    if base not in (None, fields["theta"]):
        fields["theta_beside_scaling"] = base
    refused = model.ask({"rope_scaling": LINEAR}) is None
    if (kind not in model.changed({"rope_scaling": LINEAR}) and (name or not refused)) or (name and beside != fields["theta_keys"]):
        fields["scales"] = False
    if own.get("rope_type", "default") not in ("default", "axial"):
        fields["rope"] = {k: v for k, v in own.items() if v is not None}
    return fields


def partial_fields(model, kind, name, head, pairs, axes):
    """`axes`: so many have equal shares of the head, of whole pairs."""
    fields = {}
    if keys := model.reads(PARTIAL, lambda key: [16 if key == "rotary_dim" else 0.375], kind):
        fields["partial_keys"] = keys
    plain = {"rope_type": "default", "rope_theta": BASE}
    layers = dict.fromkeys(attribute(model.config({}), "rope_parameters") or {name: plain}, plain) if name else plain
    within = layers | {name: plain | {"partial_rotary_factor": 0.375}} if name else plain | {"partial_rotary_factor": 0.375}
    if kind in model.changed({"rope_parameters": within}, {"rope_parameters": layers}):
        fields["partial_in_dictionary"] = True
    key = f"{kind}_inv_freq" if kind else "inv_freq"
    lanes = 2 * len((model.ask({"rope_parameters": layers}) or {}).get(key, []))
    if lanes not in (0, 2 * len(model.ask({})[key])) and not model.integer("qk_rope_head_dim"):
        fields["partial_beside_dictionary"] = lanes / head
    rope = attribute(model.config({}), "rope_parameters") or {}
    said = ((rope.get(name) if name else rope) or {}).get("partial_rotary_factor")
    if said not in (None, 1, 1.0) or pairs != head // (2 * axes) * axes:
        fields["partial"] = said or 2 * pairs / head
    return fields


def layer_fields(model, name, nested):
    """Which layers do not rotate, and the kinds of layers where a file lists none."""
    config = configuration(model.cls, {k: v for k, v in model.needed.items() if k not in ("layer_types", "num_hidden_layers")})
    kinds = list(attribute(config, "layer_types") or [])
    fields = {"layers": count} if isinstance(count := attribute(config, "num_hidden_layers"), int) else {}
    if not nested and len(set(kinds)) > 1:
        still = [kind for kind in sorted(set(kinds)) if rotates(name, model.needed, kinds.index(kind)) is False]
        fields |= {"still": still} if still else {}
    for size in range(1, len(kinds) // 2 + 1):
        if all(kind == kinds[i % size] for i, kind in enumerate(kinds)) and len(set(kinds)) > 1:
            fields["layer_pattern"] = kinds[:size]
            fields |= pattern_fields(model, config, kinds[:size])
            fields |= last_fields(model, kinds[:size])
            break
    named = getattr(model.cls, "attribute_map", {}).get("layer_types")
    return fields | ({"kinds_key": named} if named else {})


def last_fields(model, pattern):
    """The kind of the last layer where it is not that of the pattern."""
    count = len(pattern) + 1
    needed = {k: v for k, v in model.needed.items() if k != "layer_types"}
    try:
        kinds = list(configuration(model.cls, needed | {"num_hidden_layers": count}).layer_types)
    except Exception:  # noqa: BLE001  # upstream refuses that number
        return {}
    return {} if len(kinds) != count or kinds[-1] == pattern[0] else {"last_layer": kinds[-1]}


def pattern_fields(model, config, pattern):
    """Which keys say how often the layers' pattern comes again, and which change it otherwise."""
    kinds, found = list(config.layer_types), {"period_keys": [], "pattern_keys": []}
    every = periodic(pattern, 2, len(kinds))
    for key in PATTERN:
        try:
            changed = list(configuration(model.cls, {k: v for k, v in model.needed.items() if k != "layer_types"} | {key: 2}).layer_types)
        except Exception:  # noqa: BLE001  # upstream refuses it
            continue
        if changed != kinds:
            found["period_keys" if changed == every else "pattern_keys"].append(key)
    return {key: keys for key, keys in found.items() if keys}


def periodic(pattern, period, count):
    """The pattern with another period: its first or its last layer is the odd one."""
    odd = 0 if pattern[0] != pattern[-1] and pattern[-1] == pattern[len(pattern) // 2] else -1
    return [pattern[odd] if i % period == odd % period else pattern[-1 - odd] for i in range(count)]


def row_of(name):
    model = Model(name)
    kinds = [kind or "" for kind in kinds_of(rotary_module(model.module, model.rotary, model.config({})))] if model.ask({}) else []
    row = {"model_type": model.cls.model_type, "class": f"{model.module.split('.')[2]}.{model.rotary}"}
    if not kinds:
        return row | {"unread": "no frequencies are kept"}
    hand = READ.get(model.cls.model_type)
    try:
        seen = {kind or "": o for kind, o in observe(name, model.needed).items() if o is not None}
    except Exception as error:  # noqa: BLE001
        seen, row["failure"] = {}, repr(error)
    if not seen and not hand:
        return row | {"unread": row.pop("failure", "the layer calls no rotation")}
    row.pop("failure", None)
    one = next(iter(seen.values()), None)
    row["observed"] = "attention layer" if one else f"source: {hand[1]}"
    row |= pairing_fields(one, hand and hand[0])
    rotary = rotary_module(model.module, model.rotary, model.config({}))
    if one and one.axes > 1:
        row |= axis_fields(one, rotary, row["model_type"])
    row |= layer_fields(model, name, bool(kinds[0]))
    source = pathlib.Path(sys.modules[model.module].__file__).read_text()
    if "config.rope_interleave" in source:
        row["rope_interleave"] = True
    found = []
    for kind in kinds:
        length = len(model.ask({})[f"{kind}_inv_freq" if kind else "inv_freq"])
        divided = (model.integer("hidden_size") or 0) // (model.integer("num_attention_heads") or 1)
        head = seen[kind].head_dim if kind in seen else model.integer("head_dim") or divided or 2 * length
        begin, pairs = (seen[kind].begin, len(seen[kind].pairs)) if kind in seen else (0, length)
        # A width that only the attention layer needs is no default of the class.
        free = Model(name, without=("head_dim",))
        of_width = free if free.ask({}) else model
        free_head = head if "head_dim" not in model.needed else 2 * len((of_width.ask({}) or {}).get(f"{kind}_inv_freq" if kind else "inv_freq", []))
        fields = base_fields(model, kind, kind) | width_fields(of_width, kind, free_head) | partial_fields(model, kind, kind, head, pairs, one.axes if row.get("axis_rule") == "AXIAL" else 1)
        if model.integer("qk_rope_head_dim") and kind in model.changed({"qk_rope_head_dim": model.integer("qk_rope_head_dim") + 16}):
            fields |= {"latent": [begin, head - begin]}
        found.append(({"name": kind} if kind else {}) | fields)
    if seen and (steps := rounding(name, model.needed, found, seen)):
        row["parity"] = steps
    return row | ({"kinds": found} if found[0].get("name") else found[0])


def parts(known):
    """Composite model_type -> the model_types that its parts have where they do not say them."""
    found = {}
    for cls in config_classes().values():
        try:
            whole = cls()
        except Exception:  # noqa: BLE001  # has no defaults
            whole = None
        inner = {key: getattr(attribute(whole, key) or sub, "model_type", "") for key, sub in (cls.sub_configs or {}).items()}
        inner = {key: value for key, value in inner.items() if value in known}
        if inner and cls.model_type:
            found[cls.model_type] = inner
    return dict(sorted(found.items()))


def row_or_failure(name):
    try:
        row = row_of(name)
    except Exception as error:  # noqa: BLE001  # listed for a person
        row = {"model_type": config_classes()[name].model_type, "class": name, "unread": repr(error)}
    print(row["model_type"], row.get("unread", row.get("observed"))[:120], file=sys.stderr, flush=True)
    return row


def table():
    rows = {row["model_type"]: row for row in of_each(row_or_failure, sorted(survey())) if row["model_type"]}
    for name, row in BY_HAND.items():
        before = rows.get(name, {"model_type": name})
        rows[name] = {k: v for k, v in before.items() if k != "unread" or "observed" not in row} | row
    for name in [*REMEDIES, *NO_ROTATION]:  # the file and a pairing would be misread
        rows[name]["own_fields"] = True
    rows = dict(sorted(rows.items()))
    known = {name for name, row in rows.items() if "unread" not in row}
    return {"transformers": transformers.__version__, "parts": parts(known), "models": list(rows.values())}


def written(found):
    """One row a line, so that a changed row is a changed line."""
    lines = ",\n".join(json.dumps(row) for row in found["models"])
    composite = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found["parts"].items())
    return f'{{"transformers": {json.dumps(found["transformers"])},\n"parts": {{\n{composite}}},\n"models": [\n{lines}\n]}}\n'


def differences(found, stored):
    new, old = ({row["model_type"]: row for row in side["models"]} for side in (found, stored))
    for name in sorted(new | old):
        if new.get(name) != old.get(name):
            yield f"{name}: {'gone' if name not in new else 'new' if name not in old else 'changed'}: {json.dumps(new.get(name))}"


def main(write_table):
    """Prints what transformers' code says now against the table; returns these lines."""
    found = table()
    stored = json.loads(TABLE.read_text()) if TABLE.exists() else {"models": []}
    lines = list(differences(found, stored))
    if not lines and written(found) != TABLE.read_text():
        lines = ["the order of rows, the parts or the version changed"]
    for line in lines:
        print(line)
    for row in found["models"]:
        if "unread" in row and row["model_type"] not in found["parts"]:
            print(f"needs a person: {row['model_type']} ({row['class']}): {row['unread'][:200]}")
    if write_table:
        TABLE.write_text(written(found))
        table_rows.cache_clear()
    return lines
