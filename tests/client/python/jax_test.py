# SPDX-License-Identifier: Apache-2.0
"""phasor.jax: the bytes of phasor.apply_rope under jit, vmap and grad."""

import numpy as np
import pytest

import phasor

jax = pytest.importorskip("jax", reason="jax is not installed here")
import phasor.jax

HALF = phasor.Spec("rope-half-split")
AMPLITUDE = phasor.Spec("rope-half-split", attention_factor=1.5)
SHAPE = (7, 3, 16)


def x(dtype="float32", shape=SHAPE):
    return jax.numpy.asarray(np.random.default_rng(5).standard_normal(shape), dtype)


def rotated(x, positions, spec=HALF, **kwargs):
    return phasor.apply_rope(np.asarray(x), positions=np.asarray(positions), spec=spec, **kwargs)


def same(a, b):
    assert isinstance(a, jax.Array) and a.dtype == b.dtype and a.shape == b.shape
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_rotations_are_those_of_the_package(wrap, dtype):
    ids = jax.numpy.arange(100, 107)
    assert same(wrap(lambda x, p: phasor.jax.apply_rope(x, p, HALF))(x(dtype), ids), rotated(x(dtype), range(100, 107)))
    heads_first = x(dtype, (2, 3, 7, 16))
    turned = wrap(lambda x, p: phasor.jax.apply_rope(x, p, HALF, layout="htd", inverse=True))(heads_first, ids)
    assert same(turned, rotated(heads_first, range(100, 107), layout="htd", inverse=True))


def test_a_server_may_compute(phasor_server):
    with phasor.Client(phasor_server.target) as client, phasor.use(client):
        turn = jax.jit(lambda x: phasor.jax.apply_rope(x, range(7), HALF))
        assert same(turn(x()), rotated(x(), range(7)))
    with pytest.raises(Exception, match="closed"):
        np.asarray(turn(x()))  # traced with that client


def test_every_entry_of_a_vmap_has_its_positions():
    many, ids = x(shape=(4, *SHAPE)), jax.numpy.arange(28).reshape(4, 7)
    turned = jax.vmap(lambda x, p: phasor.jax.apply_rope(x, p, HALF))(many, ids)
    assert same(turned, np.stack([rotated(many[i], ids[i]) for i in range(4)]))


@pytest.mark.parametrize("spec", [HALF, AMPLITUDE])
def test_the_gradient_is_the_transposed_rotation(spec):
    ids = jax.numpy.arange(7) * 1000
    y, weights = x(), x().at[0].set(2.0)

    def loss(y):
        return (phasor.jax.apply_rope(y, ids, spec) * weights).sum()

    gradient = jax.jit(jax.grad(loss))(y)
    # The loss is linear: its slope along any direction is its difference.
    for direction in (weights, x().at[3].set(-1.0)):
        np.testing.assert_allclose(float((gradient * direction).sum()), float(loss(y + direction) - loss(y)), rtol=1e-3)
    square = jax.hessian(lambda y: (phasor.jax.apply_rope(y, range(1), spec) ** 2).sum(), argnums=0)
    with pytest.raises(TypeError):
        square(y[:1, :1])  # forward over reverse: not offered
    twice = jax.jacrev(jax.jacrev(lambda y: (phasor.jax.apply_rope(y, range(1), HALF) ** 2).sum()))(y[:1, :1])
    np.testing.assert_allclose(np.asarray(twice).reshape(16, 16), 2 * np.eye(16), atol=1e-5)


def test_encodings_are_those_of_the_package():
    encode = jax.jit(lambda p: phasor.jax.encode({"preset": "timestep-sin-cos", "dim": 8}, p))
    assert same(encode(jax.numpy.arange(6).reshape(2, 3)), phasor.encode({"preset": "timestep-sin-cos", "dim": 8}, np.arange(6).reshape(2, 3)))
    grid = {"preset": "grid-2d-concat", "dim": 16}
    pairs = np.array([[y, x] for y in range(2) for x in range(3)])
    assert same(phasor.jax.encode(grid, pairs, dtype="bfloat16"), phasor.encode(grid, pairs, dtype="bfloat16"))
    table = phasor.jax.encode("llama-3", range(5), form="cos_sin")
    assert same(table, phasor.encode("llama-3", range(5), form="cos_sin"))


def test_positions_that_jax_would_round_are_refused():
    for positions in ([2**40], [0.1], [2**24 + 0.5]):
        with pytest.raises(phasor.InvalidArgument, match="positions: jax rounds them to"):
            phasor.jax.apply_rope(x(shape=(1, 1, 16)), positions, HALF)
    with jax.enable_x64(True):
        assert same(phasor.jax.apply_rope(x(shape=(1, 1, 16)), [2**40], HALF), rotated(x(shape=(1, 1, 16)), [2**40]))


def test_errors_are_raised():
    with pytest.raises(Exception, match="positions: 6 positions"):
        np.asarray(phasor.jax.apply_rope(x(), range(6), HALF))
    with pytest.raises(phasor.NotFound):
        phasor.jax.apply_rope(x(), range(7), "no-such-preset")
