# SPDX-License-Identifier: Apache-2.0
"""Chunks of LMCache (KV_2LTD), moved by Phasor and by the torch operation of LMCache's wheel."""

import importlib.util
import pathlib

import numpy as np
import pytest
import truth

torch = pytest.importorskip("torch", reason="torch is not installed here: tests/conformance/run.sh installs it")
if importlib.util.find_spec("lmcache") is None:
    pytest.skip("lmcache is not installed here: tests/conformance/run.sh installs it", allow_module_level=True)

import phasor

LAYERS, TOKENS, HEADS, LANES, FROM, TO = 3, 16, 2, 128, 700, 3000
THETA = 500000.0


def rotary_embedding_k_fused():
    """By its path: the package itself needs CUDA."""
    folder = pathlib.Path(importlib.util.find_spec("lmcache").submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location("pos_kernels", folder / "v1/platform/torch_ops/pos_kernels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.rotary_embedding_k_fused


def chunk():
    """[keys and values, layers, tokens, lanes of all heads]"""
    return torch.randn((2, LAYERS, TOKENS, HEADS * LANES), generator=torch.Generator().manual_seed(6)).to(torch.bfloat16)


def moved_by_phasor(spec):
    kv = chunk()
    layout = phasor.KeyLayout("lmcache-2ltd", "bfloat16", pages=1, page_size=TOKENS, heads=HEADS, head_dim=LANES, layers=LAYERS)
    layers = [phasor.KeyLayer(spec=0, layer=layer) for layer in range(LAYERS)]
    group = phasor.KeyGroup([phasor.KeyRun([0], count=TOKENS, from_=FROM, to=TO)])
    phasor.move_paged([kv], layouts=[layout], specs=[phasor.KeySpec(spec)], layers=layers, groups=[group], mode="move")
    return kv


def moved_by_lmcache(table_type, half_split, amplitude=1.0):
    """With a table of cosines and sines, as vLLM has it: in the type of the model, amplitude included."""
    kv, move = chunk(), rotary_embedding_k_fused()
    angles = torch.outer(torch.arange(4096, dtype=torch.float64), THETA ** -(torch.arange(LANES // 2, dtype=torch.float64) / (LANES // 2)))
    table = (torch.cat((angles.cos(), angles.sin()), -1) * amplitude).to(table_type)
    for layer in range(LAYERS):
        keys = kv[0, layer].view(TOKENS, HEADS, LANES)
        move(torch.arange(FROM, FROM + TOKENS), torch.arange(TO, TO + TOKENS), keys, LANES, table, half_split)
    return kv


def exact(half_split):
    keys = chunk()[0].double().numpy().reshape(LAYERS, TOKENS, HEADS, LANES)
    turned = [truth.rotated(layer, [TO - FROM] * TOKENS, THETA, interleaved=not half_split) for layer in keys]
    return np.stack(turned).reshape(LAYERS, TOKENS, -1)


def difference(got, wanted):
    got, wanted = (np.asarray(x.double() if isinstance(x, torch.Tensor) else x) for x in (got, wanted))
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("half_split", [True, False])
def test_both_agree_within_their_roundings(half_split):
    spec = phasor.Spec("rope-half-split" if half_split else "rope-interleaved", head_dim=LANES, rope_theta=THETA)
    ours, coarse, fine = moved_by_phasor(spec), moved_by_lmcache(torch.bfloat16, half_split), moved_by_lmcache(torch.float32, half_split)
    wanted = exact(half_split)
    errors = [difference(kv[0], wanted) for kv in (ours, coarse, fine)]
    print(f"\nerror of a move: {errors[0]:.3g}; LMCache's {errors[1]:.3g} with tables in bfloat16, {errors[2]:.3g} in float32")
    assert errors[0] < 0.0017 and errors[1] < 0.0045 and errors[2] < 0.0018
    assert difference(ours[0], fine[0]) < 0.0005 and difference(ours[0], coarse[0]) < 0.0045
    for kv in (ours, coarse, fine):
        assert torch.equal(kv[1], chunk()[1])  # values stay


def test_an_amplitude_stays_on_the_key_once():
    """Of YaRN, for example. LMCache's operation undoes and redoes with it, so its callers have to divide tables by it."""
    amplitude = 1.1386294361119891
    spec = phasor.Spec("rope-half-split", head_dim=LANES, rope_theta=THETA, attention_factor=amplitude)
    assert difference(moved_by_phasor(spec)[0], exact(True)) < 0.0017
    assert difference(moved_by_lmcache(torch.float32, True, amplitude)[0], exact(True)) == pytest.approx(amplitude**2 - 1, rel=0.01)
