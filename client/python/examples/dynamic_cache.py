# SPDX-License-Identifier: Apache-2.0
"""Moves the keys in a DynamicCache of transformers to other positions: a cached prompt serves behind another one.

The specs of the layers follow from the model's configuration: scaling, partial rotary, local and global layers. See
docs/move-keys.md, also for what a move cannot make right.
"""

import phasor


def spec_of(config, layer, **fields):
    """The spec of a layer, or None for one without rotation (SmolLM3, Llama 4, Cohere 2)."""
    try:
        return phasor.Spec.from_config(config, layer_type=str(layer), **fields)
    except phasor.InvalidArgument as error:
        if error.field == "spec.layer_type" and "does not rotate" in str(error):
            return None
        raise


def rotated_lanes(layer, config):
    """The name of the tensor of a layer that a move turns. Attention with latents (DeepSeek V3 and its relatives) keeps
    those as keys, which have no position, and in place of values the rotated lanes that all heads share."""
    latents = getattr(config, "kv_lora_rank", None)
    return "values" if (layer.keys.shape[-1], layer.values.shape[-1]) == (latents, getattr(config, "qk_rope_head_dim", None)) else "keys"


def move(cache, config, first, to, *, was=None, **fields):
    """Moves all keys of `cache`, the first of which is at position `first`, so that it is at position `to`.

    All layers go in one call, in place. `fields` are those of specs that the configuration leaves open: a
    sequence_length for dynamic NTK and LongRoPE. `was`: those with which the keys were rotated, if they were others; so a
    cache crosses the original length of LongRoPE."""
    pools, layouts, layers, groups, specs = [], [], [], [], {}
    for index, layer in enumerate(cache.layers):
        name = rotated_lanes(layer, config)
        width = {"head_dim": config.qk_rope_head_dim} if name == "values" else {}
        spec = spec_of(config, index, **width | fields)
        if spec is None:
            continue
        stored = getattr(layer, name).contiguous()
        setattr(layer, name, stored)
        batch, heads, tokens, lanes = stored.shape  # a page per sequence of the batch
        code = str(stored.dtype).removeprefix("torch.")
        layouts.append(phasor.KeyLayout("hnd", code, pages=batch, page_size=tokens, heads=heads, head_dim=lanes))
        # A sliding layer has dropped its first tokens.
        dropped = cache.get_seq_length(index) - tokens
        runs = [phasor.KeyRun(block_table=[page], count=tokens, from_=first + dropped, to=to + dropped) for page in range(batch)]
        groups.append(phasor.KeyGroup(runs))
        number = list(specs).index(spec.fingerprint) if spec.fingerprint in specs else len(specs)
        specs.setdefault(spec.fingerprint, phasor.KeySpec(spec, from_spec=None if was is None else spec_of(config, index, **width | was)))
        place = phasor.KeyPlace(pool=len(pools))
        layers.append(phasor.KeyLayer(layout=len(pools), spec=number, group=len(pools), place=place, copy_values=False))
        pools.append(stored)
    return phasor.move_paged(pools, layouts=layouts, specs=list(specs.values()), layers=layers, groups=groups, mode="move")
