# SPDX-License-Identifier: Apache-2.0
"""phasor.torch.patch and verify on tiny random models. Skipped without torch and transformers."""

import importlib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here: tests/conformance/run.sh installs it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed here")

import phasor
import phasor.torch

SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50}
CONFIGS = {
    "llama": ("LlamaConfig", {}),
    "llama, llama3": (
        "LlamaConfig",
        {
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),  # fmt: skip
    "llama, yarn": ("LlamaConfig", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}}),
    "mistral": ("MistralConfig", {}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "gemma2": ("Gemma2Config", {"head_dim": 16}),
    "gemma3, rules by layer": ("Gemma3TextConfig", {"head_dim": 16}),
    "phi3, partial": ("Phi3Config", {"partial_rotary_factor": 0.5, "pad_token_id": 0}),
    "olmo2": ("Olmo2Config", {}),
    "gpt-oss, half tables": ("GptOssConfig", {"head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "llama 4, complex tables": (
        "Llama4TextConfig",
        {"head_dim": 16, "num_local_experts": 2, "intermediate_size_mlp": 64, "no_rope_layers": [1, 1], "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "attn_temperature_tuning": False},
    ),
    "bamba, limits of infinity": (
        "BambaConfig",
        {"attn_layer_indices": [0], "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 1, "mamba_d_state": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    ),
}

# M-RoPE: positions of three axes. With the base, and the axis of each pair.
CHUNKS, THREES = [0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 2, 0, 1, 2, 0, 0]
IMAGES = {
    "qwen2-vl": ("Qwen2VLTextConfig", 1e6, CHUNKS, {"mrope_section": [2, 3, 3]}),
    "qwen2.5-vl": ("Qwen2_5_VLTextConfig", 1e6, CHUNKS, {"mrope_section": [2, 3, 3]}),
    "qwen3-vl, interleaved": ("Qwen3VLTextConfig", 5e6, THREES, {"mrope_section": [4, 2, 2], "mrope_interleaved": True}),
    "glm4v, repeated": ("Glm4vTextConfig", 1e4, CHUNKS, {"mrope_section": [2, 3, 3], "partial_rotary_factor": 1.0}),
}


def tiny(name):
    return make(*CONFIGS[name])


def make(kind, fields):
    if not hasattr(transformers, kind):
        pytest.skip(f"this transformers has no {kind}")
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(getattr(transformers, kind)(**SMALL, **fields)).eval()


def states(model, first):
    ids = torch.arange(12)[None]
    with torch.no_grad():
        return model(input_ids=ids, position_ids=ids + first).last_hidden_state


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", IMAGES)
def test_positions_of_several_axes_are_exact_far_away(name):
    kind, theta, axes, fields = IMAGES[name]
    model = make(kind, {"head_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": theta, **fields}})
    text = torch.arange(12)[None]
    image = torch.stack([torch.full((1, 12), 4), 4 + text // 4, 4 + text % 4])
    x = torch.zeros(1, 12, 1)
    near, hidden = model.rotary_emb(x, image), model(input_ids=text, position_ids=image).last_hidden_state
    assert phasor.torch.verify(model).worst.error > 1e-5
    with phasor.torch.patch(model) as patch:
        assert patch.replaced == ["rotary_emb"]
        torch.testing.assert_close(model.rotary_emb(x, image), near, atol=1e-5, rtol=0)
        torch.testing.assert_close(model(input_ids=text, position_ids=image).last_hidden_state, hidden, atol=1e-5, rtol=0)
        far = model.rotary_emb(x, image + 1_000_000)
        torch.testing.assert_close(model.rotary_emb(x, text), model.rotary_emb(x, text.expand(3, 1, 12)), atol=0, rtol=0)
    angles = (image[axes, 0].double() + 1_000_000).T * theta ** -(torch.arange(8).double() / 8)
    columns = [j // 2 for j in range(16)] if "repeated" in name else [*range(8), *range(8)]
    for mine, function in zip(far, (torch.cos, torch.sin), strict=True):
        torch.testing.assert_close(mine[0].double(), function(angles)[:, columns], atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONFIGS)
def test_patched_models_agree_near_and_are_exact_far_away(name):
    model = tiny(name)
    near, far = states(model, 0), states(model, 1_000_000)
    report = phasor.torch.verify(model)
    assert max(row.error for row in report.rows if row.position <= 10) < 1e-5
    assert report.worst.error > 1e-5 and report.worst.position >= 100_000 and "largest error" in str(report)
    lines = report.plot().lines
    assert sum(len(line.get_ydata()) for line in lines) == len(report.rows) and max(map(max, (line.get_ydata() for line in lines))) == report.worst.error
    with phasor.torch.patch(model) as patch:
        assert patch.replaced and all("rotary" in each for each in patch.replaced)
        torch.testing.assert_close(states(model, 0), near, atol=1e-5, rtol=0)
        exact_far = states(model, 1_000_000)
        with pytest.raises(phasor.NotFound):
            phasor.torch.patch(model)  # it has no other modules any more
    assert torch.equal(states(model, 0), near) and torch.equal(states(model, 1_000_000), far)
    # Attention sees differences of positions, so exact angles give at 1M nearly what they give at 0.
    assert (exact_far - near).abs().max() < (far - near).abs().max()


# Rotary classes of text models that are refused with the values that their configurations have by default.
REFUSED = {
    "no file says which layers": {"BeamRotaryEmbedding", "DeepseekV4RotaryEmbedding", "Zamba2RotaryEmbedding"},
    "no file says what they compute": {
        "Dots3NoteTextRotaryEmbedding", "EfficientLoFTRRotaryEmbedding", "EomtDinov3RotaryEmbedding", "EsmRotaryEmbedding",
        "HunYuanVLRotaryEmbedding", "Sam3ViTRotaryEmbedding",
    },
    "the defaults contradict each other": {
        "Glm4MoeRotaryEmbedding", "Glm4vMoeTextRotaryEmbedding", "Glm4vTextRotaryEmbedding", "GlmImageTextRotaryEmbedding",
        "MiniMaxM3VLRotaryEmbedding", "Qwen3OmniMoeThinkerTextRotaryEmbedding", "Qwen3OmniMoeRotaryEmbedding",
        "Qwen3OmniMoeTalkerRotaryEmbedding", "Qwen2_5OmniRotaryEmbedding",
    },
    "other angles": {"MLCDRotaryEmbedding", "MusicFlamingoRotaryEmbedding", "NanoChatRotaryEmbedding"},
}  # fmt: skip


def rotary_modules():
    """Every rotary module of transformers that its configuration's defaults make, but for those of vision towers."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for model_type in sorted(CONFIG_MAPPING):
        kind = CONFIG_MAPPING[model_type]
        try:
            source = importlib.import_module(kind.__module__.replace("configuration_", "modeling_"))
        except Exception:  # needs what is not installed
            continue
        for name, cls in vars(source).items():
            if not name.endswith("RotaryEmbedding") or "Vision" in name or getattr(cls, "__module__", "") != source.__name__:
                continue
            try:
                config = kind()
                module = cls(config=config.get_text_config() if hasattr(config, "get_text_config") else config)
            except Exception:  # the configuration of another part of the model
                continue
            yield name, module


@pytest.mark.filterwarnings("ignore")
def test_every_rotary_class_of_transformers_is_replaced_or_refused_by_name():
    replaced, refused = set(), set()
    for name, module in rotary_modules():
        try:
            with phasor.torch.patch(torch.nn.Sequential(module)):
                replaced.add(name)
        except NotImplementedError as error:
            assert name in str(error)
            refused.add(name)
    assert refused <= set().union(*REFUSED.values()), "no longer replaced"
    assert len(replaced) > 150 and len(replaced - refused) > len(replaced) - 10


def test_what_is_not_known_is_refused_and_nothing_is_replaced():
    class OddRotaryEmbedding(torch.nn.Module):
        pass

    model = torch.nn.Sequential(OddRotaryEmbedding())
    with pytest.raises(NotImplementedError, match="OddRotaryEmbedding has no configuration"):
        phasor.torch.patch(model)
    with pytest.raises(LookupError):
        phasor.torch.verify(torch.nn.Linear(1, 1))


@pytest.mark.filterwarnings("ignore")
def test_a_module_whose_angles_are_not_its_configurations_is_refused():
    model = tiny("llama")
    model.rotary_emb.inv_freq.mul_(0.5)
    with pytest.raises(phasor.Unimplemented, match="rotary_emb: .* other angles"):
        phasor.torch.patch(model)
    assert type(model.rotary_emb).__name__ == "LlamaRotaryEmbedding"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("channels", [256, 33])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(("shift", "scale"), [(0, 1), (1, 1), (0, 1000)])
def test_timesteps_of_diffusers(channels, flip, shift, scale):
    embeddings = pytest.importorskip("diffusers.models.embeddings", reason="diffusers is not installed here")
    steps = torch.tensor([0.0, 0.25, 1.0, 17.5]) if scale > 1 else torch.tensor([0, 1, 500, 999])
    theirs, mine = embeddings.Timesteps(channels, flip, shift, scale), phasor.torch.Timesteps(channels, flip, shift, scale)
    assert mine(steps).dtype == torch.float32
    torch.testing.assert_close(mine(steps), theirs(steps), atol=2e-3 if scale > 1 else 1e-4, rtol=0)
    with phasor.torch.patch(torch.nn.Sequential(theirs)) as patch:
        assert patch.replaced == ["0"]
    torch.compiler.reset()
    compiled = torch.compile(mine, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(steps), mine(steps))


@pytest.mark.filterwarnings("ignore")
def test_sinusoidal_positions_of_diffusers():
    embeddings = pytest.importorskip("diffusers.models.embeddings", reason="diffusers is not installed here")
    x = torch.randn(2, 20, 64)
    theirs, mine = embeddings.SinusoidalPositionalEmbedding(64, 32), phasor.torch.SinusoidalPositionalEmbedding(64, 32)
    torch.testing.assert_close(mine(x), theirs(x), atol=1e-5, rtol=0)
    assert mine.state_dict().keys() == theirs.state_dict().keys()
