# SPDX-License-Identifier: Apache-2.0
"""Spec, Grid and Ragged as values; configurations of models as specs."""

import json
import pickle

import numpy as np
import pytest

import phasor


def test_specs_are_values():
    spec = phasor.Spec("llama-3", rope_theta=1e6)
    assert spec == phasor.Spec("llama-3", rope_theta=1e6) and hash(spec) == hash(phasor.Spec("llama-3", rope_theta=1e6))
    assert spec != phasor.Spec("llama-3") and len({spec, phasor.Spec("llama-3")}) == 2
    assert pickle.loads(pickle.dumps(spec)) == spec and eval(repr(spec), {"Spec": phasor.Spec}) == spec
    assert spec.to_dict() == {"preset": "llama-3", "rope_theta": 1e6}
    assert spec.replace(head_dim=64) == phasor.Spec("llama-3", head_dim=64, rope_theta=1e6) != phasor.Spec("llama-3", rope_theta=1e6)
    assert spec.replace(rope_theta=None) == phasor.Spec("llama-3")
    assert len(spec.fingerprint) == 32 and spec.fingerprint != phasor.Spec("llama-3").fingerprint


def test_specs_are_checked_when_made():
    with pytest.raises(phasor.NotFound, match='did you mean "llama-3"'):
        phasor.Spec("lama-3")
    with pytest.raises(phasor.InvalidArgument, match="nearest known one is head_dim") as caught:
        phasor.Spec(head_dimm=4)
    assert caught.value.field == "spec.head_dimm"
    with pytest.raises(phasor.InvalidArgument, match=r"spec.pairing.*HALF_SPLIT"):
        phasor.Spec(pairing="halves")
    with pytest.raises(phasor.InvalidArgument, match="spec.rotary_dim: 7 is odd"):
        phasor.Spec("rope-half-split", head_dim=7)


def test_widths_may_be_left_to_the_tensors():
    assert phasor.Spec("rope-half-split").replace(head_dim=64).fingerprint
    with pytest.raises(phasor.InvalidArgument, match="head_dim: not set"):
        phasor.Spec("rope-half-split").fingerprint  # noqa: B018
    with pytest.raises(phasor.FailedPrecondition, match="encoder"):
        phasor.Spec(encoder="mine").fingerprint  # noqa: B018


def test_numbers_and_lists_of_numpy_are_fields():
    spec = phasor.Spec(kind="rotary", head_dim=np.int64(4), pairing="half_split", family="explicit", inv_freq=np.array([1.0, 0.5]))
    assert phasor.Client().resolve(spec).inv_freq.tolist() == [1.0, 0.5]


def test_configurations_are_specs(tmp_path):
    config = {"model_type": "llama", "rope_theta": 500000.0, "head_dim": 128, "hidden_size": 4096, "num_attention_heads": 32}
    (tmp_path / "config.json").write_text(json.dumps(config))

    class Config:
        def to_dict(self):
            return config

    specs = [phasor.Spec.from_config(each) for each in (config, tmp_path, tmp_path / "config.json", str(tmp_path), Config())]
    assert {spec.fingerprint for spec in specs} == {phasor.Spec("llama-3").fingerprint}
    with pytest.raises(TypeError, match="config: int"):
        phasor.Spec.from_config(5)
    with pytest.raises(FileNotFoundError):
        phasor.Spec.from_config(tmp_path / "absent.json")


UNREAL = [float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("number", UNREAL, ids=str)
@pytest.mark.parametrize("key", ["rope_theta", "head_dim", "max_position_embeddings", "partial_rotary_factor", "rope_scaling"])
def test_numbers_that_json_lacks_are_refused_where_a_rotation_reads_them(client, key, number):
    """Not taken for absent, which would bring the default."""
    config = {"model_type": "llama", "rope_theta": 500000.0, "head_dim": 128, key: number}
    with pytest.raises(phasor.InvalidArgument, match=rf'config_json.{key}: "-?(NaN|Infinity)"; must be') as caught:
        phasor.Spec.from_config(config)
    assert caught.value.field == f"spec.config_json.{key}"
    with pytest.raises(phasor.InvalidArgument, match=rf'config_json.{key}: "-?(NaN|Infinity)"; must be'):
        client.resolve_model(config)


@pytest.mark.parametrize("number", UNREAL, ids=str)
def test_numbers_that_json_lacks_are_refused_inside_a_scaling(number):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "beta_fast": number}
    long = {"rope_type": "longrope", "short_factor": [1.0] * 64, "long_factor": [1.0] * 63 + [number], "original_max_position_embeddings": 4096}
    for scaling, field in ((yarn, "beta_fast"), (long, r"long_factor\[63\]")):
        config = {"model_type": "llama", "rope_theta": 500000.0, "head_dim": 128, "rope_scaling": scaling}
        with pytest.raises(phasor.InvalidArgument, match=rf"config_json.rope_scaling.{field}: .*must be a number"):
            phasor.Spec.from_config(config)


def test_numbers_that_json_lacks_are_ignored_where_no_rotation_reads_them():
    """Bamba, Falcon H1 and Granite have a limit of infinity."""
    config = {"model_type": "bamba", "rope_theta": 10000.0, "head_dim": 128}
    plain = phasor.Spec.from_config(config)
    for number in UNREAL:
        other = {"time_step_limit": (0.0, number), "note": "Infinity is no limit", "nested": {"limit": number}}
        assert phasor.Spec.from_config(config | other).fingerprint == plain.fingerprint


def test_all_layers_of_a_model(client):
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}, "vision_config": {"model_type": "siglip_vision_model"}}
    parts = client.resolve_model(config)
    assert list(parts) == ["", "vision_config"]
    layers = parts[""].layers
    assert len(layers) == 26 and layers[0] is layers[1] and layers[5].layer_type == "full_attention"
    for number in (0, 5):
        spec = phasor.Spec.from_config(config, layer_type=str(number))
        assert layers[number].spec.fingerprint == layers[number].fingerprint == spec.fingerprint
        assert phasor.Spec.from_config(config).replace(layer_type=str(number)).fingerprint == spec.fingerprint
        assert phasor.Spec.from_config(config, sub_config="text_config", layer_type=str(number)).fingerprint == spec.fingerprint
    assert (layers[5].attention_factor, layers[5].width) == (1.0, 256)
    assert parts["vision_config"].layers == () and "siglip_vision_model" in parts["vision_config"].error
    still = client.resolve_model({"model_type": "smollm3"}, rope_theta=7.0)[""].layers
    assert still[3].spec is None and still[0].spec.to_dict()["rope_theta"] == 7.0
    assert list(client.resolve_model(config, sub_config="text_config")) == ["text_config"]
    with pytest.raises(phasor.InvalidArgument, match="spec.layer_type: set"):
        phasor.resolve_model(config, layer_type="5")


def test_exactly_one_spec_is_given():
    x = np.zeros((1, 1, 8), np.float32)
    for wrong in ({}, {"spec": "llama-3", "preset": "llama-3"}):
        with pytest.raises(phasor.InvalidArgument, match="spec: give exactly one"):
            phasor.apply_rope(x, positions=0, **wrong)
    with pytest.raises(TypeError, match="spec: int"):
        phasor.apply_rope(x, positions=0, spec=5)
    with pytest.raises(phasor.InvalidArgument, match="spec: give either"):
        phasor.encode(None, 0)


def test_grids_and_ragged_positions_are_values():
    for value in (phasor.Grid(2, range(0, 6, 2), (0.5, 0.5, 3)), phasor.Ragged([3, 2], offsets=[0, 100])):
        assert pickle.loads(pickle.dumps(value)) == value and hash(value) == hash(pickle.loads(pickle.dumps(value)))
        assert eval(repr(value), vars(phasor)) == value
    with pytest.raises(TypeError, match=r"positions.grid.axes\[1\]"):
        phasor.Grid(2, "x")


def test_presets_have_sources_and_fields():
    found = {preset.name: preset for preset in phasor.presets("llama*")}
    assert found["llama-3"].fields["rope_theta"] == 500000.0 and found["llama-3"].source
    assert all(name.startswith("llama") for name in found) and len(phasor.presets()) > 100
    assert phasor.presets("transformer")[0].required_fields == ("dim",)


def test_dtypes_by_every_name():
    import ml_dtypes

    for dtype in ("float16", np.float16, np.dtype("float16"), "half"):
        assert phasor.encode({"preset": "transformer", "dim": 4}, 1, dtype=dtype).dtype == np.float16
    assert phasor.encode({"preset": "transformer", "dim": 4}, 1, dtype=ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    for wrong in ("int8", np.complex64, "float31", object()):
        with pytest.raises(phasor.InvalidArgument, match="dtype"):
            phasor.encode({"preset": "transformer", "dim": 4}, 1, dtype=wrong)
    with pytest.raises(phasor.InvalidArgument, match="form"):
        phasor.encode({"preset": "transformer", "dim": 4}, 1, form="cosine")
    with pytest.raises(phasor.InvalidArgument, match="layout"):
        phasor.apply_rope(np.zeros((1, 1, 8)), positions=0, spec="rope-half-split", layout="dht")
