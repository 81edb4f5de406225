# SPDX-License-Identifier: Apache-2.0
"""Caches of transformers that Phasor moves (client/python/examples/dynamic_cache.py), on tiny random models.

Attention with rotary embeddings sees differences of positions. So a prompt that was read at 0 and moved must have the keys
of the same prompt read at the other place, in every layer, and decoding must go on alike.
"""

import pathlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here: tests/conformance/run.sh installs it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed here")
sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "client/python/examples"))

import dynamic_cache

TOKENS, FURTHER, OFFSET, BATCH = 24, 6, 1000, 2
SIZES = {
    "vocab_size": 64,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16384,
    "pad_token_id": 0,
}
ROPE = {"rope_theta": 10000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 4096}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}

LONG = {
    "rope_type": "longrope",
    "factor": 4.0,
    "original_max_position_embeddings": 4096,
    "short_factor": [1.0 + 0.01 * i for i in range(32)],
    "long_factor": [1.0 + 0.1 * i for i in range(32)],
}

# The configuration of a model, and what to change in it that the move must not survive.
MODELS = {
    "plain": (transformers.LlamaConfig, {"rope_parameters": ROPE}, {"rope_parameters": {"rope_theta": 500000.0}}),
    "Llama 3.1": (transformers.LlamaConfig, {"rope_parameters": ROPE | LLAMA3}, {"rope_parameters": ROPE}),
    "YaRN": (transformers.LlamaConfig, {"rope_parameters": ROPE | YARN}, {"rope_parameters": ROPE}),
    "linear": (transformers.LlamaConfig, {"rope_parameters": ROPE | {"rope_type": "linear", "factor": 4.0}}, {"rope_parameters": ROPE}),
    "dynamic": (
        transformers.LlamaConfig,
        {"rope_parameters": ROPE | {"rope_type": "dynamic", "factor": 4.0}},
        {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "dynamic", "factor": 4.0}},
    ),
    "LongRoPE": (
        transformers.LlamaConfig,
        {"rope_parameters": ROPE | LONG},
        {"rope_parameters": ROPE | LONG | {"short_factor": LONG["long_factor"]}},
    ),
    "partial": (
        transformers.StableLmConfig,
        {"rope_parameters": ROPE | {"partial_rotary_factor": 0.25}},
        {"rope_parameters": ROPE | {"partial_rotary_factor": 0.5}},
    ),
    "two bases": (
        transformers.Gemma3TextConfig,
        {"num_hidden_layers": 6, "head_dim": 64},
        {"rope_parameters": {"sliding_attention": ROPE, "full_attention": ROPE}},
    ),
    "latents": (
        transformers.DeepseekV3Config,
        {"q_lora_rank": None, "kv_lora_rank": 48, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 64, "first_k_dense_replace": 3}
        | {"rope_parameters": ROPE},
        {"rope_parameters": {"rope_theta": 500000.0}},
    ),
    "layers without rotation": (transformers.SmolLM3Config, {"num_hidden_layers": 4}, {"no_rope_layers": [1, 1, 0, 1]}),
}


def turned(layer, config):
    """The lanes with positions. The other tensor of the layer has none."""
    return getattr(layer, dynamic_cache.rotated_lanes(layer, config))


def lengths(config):
    """The field that rules by length need; these caches are below the original length."""
    rule = config.rope_parameters.get("rope_type")
    return {"sequence_length": OFFSET + TOKENS + FURTHER} if rule in ("dynamic", "longrope") else {}


def random_model(config, dtype=torch.float32):
    """With sharp attention: logits depend on where keys are."""
    torch.manual_seed(4)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "q_proj" in name:
                weights.mul_(8)
            if "q_norm" in name:  # of Gemma, which multiplies by 1 + weight
                weights.add_(1)
            if "v_proj" in name or "o_proj" in name:
                weights.mul_(4)
    return model


def read(model, ids, cache, at):
    """Logits after every token. The first is at position `at`; attention sees the cache and what comes before."""
    positions = torch.arange(at, at + ids.shape[1])[None].expand(BATCH, -1)
    with torch.no_grad():
        return model(ids, position_ids=positions, past_key_values=cache, use_cache=True).logits


def difference(got, wanted):
    return float((got - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_moved_cache_is_the_one_that_was_read_there(name, dtype):
    kind, given, wrong = MODELS[name]
    config = kind(**SIZES | given)
    model = random_model(config, dtype)
    ids = torch.randint(1, 64, (BATCH, TOKENS + FURTHER))
    prompt, further = ids[:, :TOKENS], ids[:, TOKENS:]
    caches = {}
    for at in (0, OFFSET):
        caches[at] = transformers.DynamicCache(config=config)
        read(model, prompt, caches[at], at)
    unmoved, there = [turned(layer, config).clone() for layer in caches[0].layers], caches[OFFSET]
    result = dynamic_cache.move(caches[0], config, 0, OFFSET, **lengths(config))
    first = difference(turned(caches[0].layers[0], config), turned(there.layers[0], config))
    rotated = [dynamic_cache.spec_of(config, i, **lengths(config)) is not None for i in range(len(unmoved))]
    # Both caches round once; float32 angles of transformers are off by 3e-5 at these positions, and layers add to it.
    store = 2e-4 if dtype == torch.float32 else 0.006
    for index, (layer, wanted) in enumerate(zip(caches[0].layers, there.layers)):
        assert difference(turned(layer, config), turned(wanted, config)) < store * (1 if index == 0 or dtype == torch.float32 else 4), index
        assert (difference(unmoved[index], turned(wanted, config)) > 0.1) == rotated[index]
    assert result.tokens == BATCH * TOKENS * sum(rotated)
    # The check can fail: the same move under another configuration.
    other = kind(**SIZES | given | wrong)
    again = transformers.DynamicCache(config=config)
    read(model, prompt, again, 0)
    dynamic_cache.move(again, other, 0, OFFSET, **lengths(other))
    assert max(difference(turned(layer, config), turned(kept, config)) for layer, kept in zip(again.layers, there.layers)) > 0.05
    # Decoding goes on alike, as it does not without the move.
    still = transformers.DynamicCache(config=config)
    read(model, prompt, still, 0)
    wanted, got, bad = (read(model, further, cache, OFFSET + TOKENS) for cache in (there, caches[0], still))
    limit = 1e-3 if dtype == torch.float32 else 0.05
    print(f"\n{name}, {dtype}: keys of layer 0 {first:.2g}, logits {difference(got, wanted):.2g}, without the move {difference(bad, wanted):.2g}")
    assert difference(got, wanted) < limit < difference(bad, wanted)


def test_what_a_sliding_layer_has_dropped_is_counted():
    """Its cache holds the last tokens of the prompt."""
    config = transformers.Gemma3TextConfig(**SIZES | {"num_hidden_layers": 6, "head_dim": 64, "sliding_window": 9})
    model = random_model(config)
    ids = torch.randint(1, 64, (BATCH, TOKENS))
    caches = []
    for at in (0, OFFSET):
        caches.append(transformers.DynamicCache(config=config))
        read(model, ids, caches[-1], at)
    assert [layer.keys.shape[2] for layer in caches[0].layers] == [8] * 5 + [TOKENS]
    dynamic_cache.move(caches[0], config, 0, OFFSET)
    for layer, wanted in zip(caches[0].layers, caches[1].layers):
        assert difference(layer.keys, wanted.keys) < 2e-4


def test_a_cache_crosses_the_original_length_of_longrope():
    """transformers rotates all keys of a long prompt by the long factors, and those of a short one by the short ones."""
    config = transformers.LlamaConfig(**SIZES | {"rope_parameters": ROPE | LONG})
    model, far = random_model(config), LONG["original_max_position_embeddings"] + 50
    ids = torch.randint(1, 64, (BATCH, TOKENS))
    caches = []
    for at in (0, 0, far):
        caches.append(transformers.DynamicCache(config=config))
        read(model, ids, caches[-1], at)
    short, long = {"sequence_length": TOKENS}, {"sequence_length": far + TOKENS}
    dynamic_cache.move(caches[0], config, 0, far, was=short, **long)
    dynamic_cache.move(caches[1], config, 0, far, **short)
    # Of the first layer: those above it were computed from attention with the short factors.
    wanted = caches[2].layers[0].keys
    assert difference(caches[0].layers[0].keys, wanted) < 3e-4
    assert difference(caches[1].layers[0].keys, wanted) > 0.5
