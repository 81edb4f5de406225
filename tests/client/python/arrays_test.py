# SPDX-License-Identifier: Apache-2.0
"""Arrays: every type and layout, which ones are copied, what results are, who owns memory."""

import array
import gc
import sys
import weakref
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import truth

import phasor

TYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
HALF = phasor.Spec("rope-half-split")


def tensor(rng, dtype="float32", shape=(7, 3, 16)):
    return rng.standard_normal(shape).astype(TYPES[dtype])


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize("dtype", TYPES)
def test_rotations_are_true_for_every_type(rng, dtype):
    x = tensor(rng, dtype)
    positions = [0, 1, 2, 1000, 131072, 1_000_000, -5]
    y = phasor.apply_rope(x, positions=positions, spec=HALF)
    assert y.dtype == x.dtype and y.shape == x.shape and y is not x
    np.testing.assert_allclose(y.astype(np.float64), truth.rotated(x, positions), atol=truth.BOUND[dtype], rtol=0)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_target_gives_the_same_bytes(rng, client, dtype):
    x = tensor(rng, dtype)
    wanted = phasor.Client().apply_rope(x, positions=range(7), spec=HALF)
    assert truth.bytes_of(client.apply_rope(x, positions=range(7), spec=HALF)) == truth.bytes_of(wanted)
    mine = x.copy()
    assert client.apply_rope(mine, positions=range(7), spec=HALF, inplace=True) is mine
    assert truth.bytes_of(mine) == truth.bytes_of(wanted)
    rows = client.encode({"preset": "transformer", "dim": 16}, [3, 1_000_000], dtype=TYPES[dtype])
    assert rows.dtype == TYPES[dtype]
    assert truth.bytes_of(rows) == truth.bytes_of(phasor.encode({"preset": "transformer", "dim": 16}, [3, 1_000_000], dtype=dtype))


@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2"])
def test_float8_results_are_scaled_rounded_and_saturated(rng, client, dtype):
    x = tensor(rng, "bfloat16")
    y = client.apply_rope(x, positions=range(7), spec=HALF, out_dtype=dtype, inv_scale=300.0)
    wide = phasor.apply_rope(x.astype(np.float64), positions=range(7), spec=HALF) * 300.0
    info = ml_dtypes.finfo(y.dtype)
    wanted = np.clip(wide, float(info.min), float(info.max))
    assert y.dtype.name == {"float8_e4m3": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}[dtype]
    step = 2.0 ** -(info.nmant + 1)
    np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=step * 1.01, atol=float(info.smallest_subnormal))


def test_the_float8_of_ml_dtypes_with_infinity_is_refused(rng):
    """Its bits mean other numbers than those of E4M3FN, which Phasor calls float8_e4m3."""
    x, ieee = tensor(rng, "bfloat16"), np.dtype(ml_dtypes.float8_e4m3)
    out = np.zeros(x.shape, ieee)
    with pytest.raises(phasor.InvalidArgument, match=r"out\[0\].dtype: float8_e4m3 is no type of Phasor"):
        phasor.apply_rope(x, positions=range(7), spec=HALF, out=out, inv_scale=1.0)
    assert not out.view(np.uint8).any()
    for dtype in (ieee, ml_dtypes.float8_e4m3):
        with pytest.raises(phasor.InvalidArgument, match=r"dtype: .*float8_e4m3.* is no type of Phasor; must be .*float8_e4m3fn of ml_dtypes"):
            phasor.apply_rope(x, positions=range(7), spec=HALF, out_dtype=dtype)
    wanted = phasor.apply_rope(x, positions=range(7), spec=HALF, out_dtype="float8_e4m3")
    for name in ("float8_e4m3fn", ml_dtypes.float8_e4m3fn, np.dtype(ml_dtypes.float8_e4m3fn)):
        assert truth.bytes_of(phasor.apply_rope(x, positions=range(7), spec=HALF, out_dtype=name)) == truth.bytes_of(wanted)
    out = np.zeros(x.shape, ml_dtypes.float8_e4m3fn)
    phasor.apply_rope(x, positions=range(7), spec=HALF, out=out)
    assert truth.bytes_of(out) == truth.bytes_of(wanted)


VIEWS = {
    "dense": lambda rng: tensor(rng),
    "cut out of wider heads": lambda rng: tensor(rng, shape=(7, 3, 48))[..., 16:32],
    "every second token": lambda rng: tensor(rng, shape=(14, 3, 16))[::2],
    "fused q, k, v": lambda rng: tensor(rng, shape=(7, 9, 16))[:, 3:6],
    "transposed heads": lambda rng: tensor(rng, shape=(3, 7, 16)).transpose(1, 0, 2),
    "one token": lambda rng: tensor(rng, shape=(7, 3, 16))[2:3],
    "one head of a transposed tensor": lambda rng: tensor(rng, shape=(1, 7, 16)).transpose(1, 0, 2),
    "with a batch": lambda rng: tensor(rng, shape=(2, 7, 3, 32))[..., :16],
    "no tokens": lambda rng: tensor(rng, shape=(0, 3, 16)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_strided_views_are_rotated_where_they_lie(rng, client, view):
    x = VIEWS[view](rng)
    tokens = x.shape[-3]
    whole = x if x.base is None else x.base
    before, dense = whole.copy(), x.copy()
    wanted = phasor.apply_rope(dense, positions=range(tokens), spec=HALF)
    y = client.apply_rope(x, positions=range(tokens), spec=HALF)
    assert truth.bytes_of(y) == truth.bytes_of(wanted)
    assert np.array_equal(whole, before), "an input was written"
    client.apply_rope_(x, positions=range(tokens), spec=HALF)
    assert truth.bytes_of(x) == truth.bytes_of(wanted)
    x[...] = dense
    assert np.array_equal(whole, before), "memory outside of the view was written"


@pytest.mark.parametrize("make", [lambda x: x[::-1], lambda x: x[..., ::-1], lambda x: x.T, lambda x: np.broadcast_to(x[:1], x.shape)])
def test_other_strides_are_copied_for_reading_and_refused_in_place(rng, make):
    x = make(tensor(rng, shape=(16, 16, 16)))
    wanted = phasor.apply_rope(x.copy(), positions=range(16), spec=HALF)
    assert truth.bytes_of(phasor.apply_rope(x, positions=range(16), spec=HALF)) == truth.bytes_of(wanted)
    with pytest.raises(phasor.InvalidArgument, match=r"^tensors\[0\]|read-only"):
        phasor.apply_rope_(x, positions=range(16), spec=HALF)


def test_unaligned_memory_is_copied(rng):
    x = tensor(rng)
    memory = bytearray(b"x" + x.tobytes())
    unaligned = np.frombuffer(memory, np.float32, offset=1).reshape(x.shape)
    assert not unaligned.flags.aligned
    y = phasor.apply_rope(unaligned, positions=range(7), spec=HALF)
    assert truth.bytes_of(y) == truth.bytes_of(phasor.apply_rope(x, positions=range(7), spec=HALF))


def test_read_only_and_swapped_arrays_are_refused(rng):
    x = tensor(rng)
    x.flags.writeable = False
    with pytest.raises(phasor.InvalidArgument, match=r"tensors\[0\]: a read-only array"):
        phasor.apply_rope_(x, positions=range(7), spec=HALF)
    with pytest.raises(ValueError, match="order"):
        phasor.apply_rope(x.astype(">f4"), positions=range(7), spec=HALF)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (np.zeros((7, 3, 16), np.int32), phasor.InvalidArgument),
        (np.zeros((7, 3, 16), np.complex64), phasor.InvalidArgument),
        (np.zeros((7, 3, 16), object), phasor.InvalidArgument),
        (np.zeros((7, 3, 16), np.dtype([])), phasor.InvalidArgument),
        ([[1.0]], TypeError),
        ("text", TypeError),
        (None, TypeError),
    ],
)
def test_what_is_no_tensor_is_refused_by_name(bad, error):
    with pytest.raises(error, match="tensors"):
        phasor.apply_rope(bad, positions=range(7), spec=HALF)


def test_arrays_of_records_are_refused_by_their_type():
    with pytest.raises(phasor.InvalidArgument, match=r"dtype: \[\('a', '<f4'\).* is no type of Phasor"):
        phasor.apply_rope(np.zeros((7, 3, 16), [("a", "f4"), ("b", "f4")]), positions=range(7), spec=HALF)


def test_several_tensors_share_positions_and_have_results_in_order(rng, client):
    q, k = tensor(rng, shape=(7, 8, 16)), tensor(rng, "bfloat16", shape=(7, 2, 16))
    q2, k2 = client.apply_rope(q, k, positions=range(7), spec=HALF)
    assert truth.bytes_of(q2) == truth.bytes_of(phasor.apply_rope(q, positions=range(7), spec=HALF))
    assert truth.bytes_of(k2) == truth.bytes_of(phasor.apply_rope(k, positions=range(7), spec=HALF))


def test_out_is_written_and_returned(rng, client):
    x, out = tensor(rng), np.full((7, 3, 32), 9, np.float32)
    y = client.apply_rope(x, positions=range(7), spec=HALF, out=out[..., :16])
    assert np.shares_memory(y, out) and (out[..., 16:] == 9).all()
    rows = np.zeros((7, 8), np.float32)
    assert client.encode({"preset": "transformer", "dim": 8}, range(7), out=rows) is rows
    assert truth.bytes_of(rows) == truth.bytes_of(phasor.encode({"preset": "transformer", "dim": 8}, range(7)))
    with pytest.raises(phasor.InvalidArgument, match="out: 1 arrays; must be one per tensor"):
        client.apply_rope(x, x, positions=range(7), spec=HALF, out=[out])


def test_an_output_overlaps_nothing_but_its_own_input(rng, client):
    x = tensor(rng, shape=(8, 3, 16))
    wanted = phasor.apply_rope(x[:7], positions=range(7), spec=HALF)
    for source, out in ((x[:7], x[1:]), (x[:7, :2], x[:7, 1:])):
        with pytest.raises(phasor.InvalidArgument, match=r"out\[0\]: overlaps tensors\[0\]"):
            client.apply_rope(source, positions=range(7), spec=HALF, out=out)
    with pytest.raises(phasor.InvalidArgument, match=r"tensors\[1\]: overlaps tensors\[0\]"):
        client.apply_rope_(x[:7], x[:7, :2], positions=range(7), spec=HALF)
    with pytest.raises(phasor.InvalidArgument, match="out: overlaps add_to"):
        client.encode({"preset": "transformer", "dim": 16}, range(7), add_to=x[:7, 0], out=x[1:, 0])
    client.apply_rope(x[:7], positions=range(7), spec=HALF, out=x[:7])
    assert truth.bytes_of(x[:7]) == truth.bytes_of(wanted)


def test_parts_of_a_fused_buffer_are_rotated_together(rng, client):
    fused = tensor(rng, shape=(7, 9, 16))
    wanted = phasor.apply_rope(fused.copy(), positions=range(7), spec=HALF)
    client.apply_rope_(fused[:, :6], fused[:, 6:8], positions=range(7), spec=HALF)
    client.apply_rope(fused[:, 8:], positions=range(7), spec=HALF, out=fused[:, 8:])
    assert truth.bytes_of(fused) == truth.bytes_of(wanted)


@pytest.mark.parametrize(
    ("named", "call"),
    [
        ("scale", lambda: phasor.encode({"preset": "transformer", "dim": 8}, [1], add_to=np.ones((1, 8), np.float32), scale="1")),
        ("heads", lambda: phasor.attention_bias("alibi", heads=1.5, queries=[1], keys=[1])),
        ("window", lambda: phasor.attention_bias("swin", heads=1, window=["a", 2], table=np.ones((9, 1), np.float32))),
        ("threads", lambda: phasor.Client(threads="2").health()),
        ("max_attempts", lambda: phasor.Client(max_attempts=1 << 40).health()),
        ("token_file", lambda: phasor.Client(token_file=3).health()),
        ("inv_scale", lambda: phasor.apply_rope(np.ones((1, 1, 16), np.float16), positions=1, spec=HALF, out_dtype="float8_e5m2", inv_scale=("1",))),
        (r"axes\[1\]", lambda: phasor.Grid(1, ("a", 1, 2))),
    ],
)
def test_values_of_another_type_are_refused_by_name(named, call):
    with pytest.raises(TypeError, match=named):
        call()


def test_buffers_of_the_standard_library_are_arrays(rng):
    x = tensor(rng, shape=(1, 1, 16))
    memory = memoryview(bytearray(x.tobytes())).cast("f", (1, 1, 16))
    wanted = phasor.apply_rope(x, positions=5, spec=HALF)
    phasor.apply_rope(memory, positions=5, spec=HALF, inplace=True)
    assert bytes(memory) == wanted.tobytes()
    ints = array.array("q", [5])
    assert truth.bytes_of(phasor.apply_rope(x, positions=ints, spec=HALF)) == wanted.tobytes()


class Dlpack:
    """An array that has nothing but DLPack."""

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def __dlpack__(self, **kwargs):
        return self.values.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


def test_dlpack_is_an_array_and_may_be_read_only(rng):
    x = tensor(rng)
    wanted = phasor.apply_rope(x, positions=range(7), spec=HALF)
    assert truth.bytes_of(phasor.apply_rope(Dlpack(x), positions=range(7), spec=HALF)) == wanted.tobytes()
    mine = x.copy()
    phasor.apply_rope_(Dlpack(mine), positions=range(7), spec=HALF)
    assert mine.tobytes() == wanted.tobytes()
    mine.flags.writeable = False
    with pytest.raises(phasor.InvalidArgument, match="read-only"):
        phasor.apply_rope_(Dlpack(mine), positions=range(7), spec=HALF)


def test_arrays_of_jax_are_read_and_never_written(rng):
    jax = pytest.importorskip("jax", reason="jax is not installed here")
    for dtype in ("float32", "bfloat16"):
        x = tensor(rng, dtype)
        theirs = jax.numpy.asarray(x)
        y = phasor.apply_rope(theirs, positions=jax.numpy.arange(7), spec=HALF)
        assert isinstance(y, jax.Array) and np.asarray(y).tobytes() == phasor.apply_rope(x, positions=range(7), spec=HALF).tobytes()
        with pytest.raises(phasor.InvalidArgument, match="ArrayImpl is read-only"):
            phasor.apply_rope_(theirs, positions=range(7), spec=HALF)
        assert np.asarray(theirs).tobytes() == x.tobytes()


def test_subclasses_of_numpy_arrays_are_arrays(rng):
    class Mine(np.ndarray):
        pass

    x = tensor(rng)
    assert truth.bytes_of(phasor.apply_rope(x.view(Mine), positions=range(7), spec=HALF)) == truth.bytes_of(
        phasor.apply_rope(x, positions=range(7), spec=HALF)
    )


MASKED_TENSORS = {
    "tensors[0]": lambda x: phasor.apply_rope(x, positions=range(7), spec=HALF),
    "tensors[1]": lambda x: phasor.apply_rope_(x.data.copy(), x, positions=range(7), spec=HALF),
    "out[0]": lambda x: phasor.apply_rope(x.data.copy(), positions=range(7), spec=HALF, out=x),
    "add_to": lambda x: phasor.encode({"preset": "transformer", "dim": 16}, range(7), add_to=x[:, 0]),
    "out": lambda x: phasor.encode({"preset": "transformer", "dim": 16}, range(7), out=x[:, 0]),
    "table": lambda x: phasor.attention_bias("swin", heads=1, window=[2, 2], table=x[:, 0]),
    "pools[0]": lambda x: phasor.move_paged([x], layouts=[], layers=[], groups=[]),
}


@pytest.mark.parametrize("field", MASKED_TENSORS)
def test_masked_elements_are_refused(rng, field):
    x = np.ma.array(tensor(rng))
    x[3, 0, 2] = np.ma.masked
    with pytest.raises(phasor.InvalidArgument, match="an array with masked elements; must have none") as caught:
        MASKED_TENSORS[field](x)
    assert caught.value.field == field


@pytest.mark.parametrize("field", ["keys", "values", "key_cache", "value_cache", "slot_mapping"])
def test_masked_elements_of_a_paged_cache_are_refused(rng, field):
    x, cache = tensor(rng), np.zeros((2, 4, 3, 16), np.float32)
    arrays = {"keys": x, "values": x.copy(), "key_cache": cache, "value_cache": cache.copy(), "slot_mapping": np.arange(7)}
    phasor.write_paged(**arrays, positions=range(7), spec=HALF)
    arrays[field] = np.ma.array(arrays[field], mask=arrays[field] == arrays[field].flat[0])
    with pytest.raises(phasor.InvalidArgument, match=f"^{field}: an array with masked elements"):
        phasor.write_paged(**arrays, positions=range(7), spec=HALF)


def test_masked_arrays_without_masked_elements_are_arrays(rng):
    """As netCDF4 gives them."""
    x = tensor(rng)
    wanted = phasor.apply_rope(x, positions=range(7), spec=HALF)
    for mask in (False, np.zeros(x.shape, bool)):
        y = phasor.apply_rope(np.ma.array(x, mask=mask), positions=np.ma.arange(7), spec=HALF)
        assert truth.bytes_of(y) == truth.bytes_of(wanted)


# --- positions ---


@pytest.mark.parametrize(
    "positions",
    [
        np.ma.array([0, 1, 2], mask=[0, 1, 0]),
        np.ma.array([0, 1, 2], np.int16, mask=[0, 1, 0]),
        np.ma.array([0, 0.5, 2], mask=True),
        [0, np.ma.masked, 2],
        [np.ma.array([0, 1], mask=[0, 1]), np.ma.array([2, 3])],
        [[0, 1], [2, np.ma.masked]],
    ],
    ids=repr,
)
def test_masked_positions_are_refused(positions):
    spec = {"preset": "timestep-sin-cos", "dim": 8}
    with pytest.raises(phasor.InvalidArgument, match="positions.*: an array with masked elements; must have none"):
        phasor.encode(spec, positions)


@pytest.mark.parametrize("field", ["positions", "from_positions", "queries", "keys"])
def test_masked_positions_are_refused_by_name(field):
    given = {field: np.ma.array([0, 1, 2], mask=[0, 1, 0])}
    with pytest.raises(phasor.InvalidArgument, match=f"^{field}: an array with masked elements; must have none"):
        if field.endswith("positions"):
            phasor.move_keys(np.zeros((3, 1, 16), np.float32), **{"from_positions": range(3), "positions": range(3)} | given, spec=HALF)
        else:
            phasor.attention_bias("alibi", heads=1, **{"queries": range(3), "keys": range(3)} | given)


SAME = [0, 3, 6, 9, 12]


@pytest.mark.parametrize(
    "positions",
    [
        range(0, 15, 3),
        SAME,
        tuple(SAME),
        [float(p) for p in SAME],
        [0, 3.0, 6, 9, 12],
        *[np.array(SAME, t) for t in "bBhHiIlLqQefdg"],
        np.array(SAME, ml_dtypes.bfloat16),
        np.array(SAME, ">i8"),
        np.arange(30)[::6] // 2,
        np.arange(12, -1, -3)[::-1],
        [np.int64(p) for p in SAME],
        array.array("i", SAME),
        Dlpack(np.array(SAME)),
        phasor.Ragged([1] * 5, offsets=SAME),
        phasor.Grid(range(0, 15, 3)),
        phasor.Grid((0.0, 3.0, 5)),
    ],
    ids=repr,
)
def test_positions_of_every_form_are_the_same_numbers(client, positions):
    wanted = truth.timesteps(SAME, 8)
    rows = client.encode({"preset": "timestep-sin-cos", "dim": 8}, positions)
    np.testing.assert_allclose(rows, wanted, atol=truth.BOUND["float32"], rtol=0)


@pytest.mark.parametrize("position", [5, np.int64(5), np.array(5), np.uint8(5), 5.0, np.float32(5)])
def test_one_number_is_the_position_of_one_token(position):
    rows = phasor.encode({"preset": "timestep-sin-cos", "dim": 8}, position)
    np.testing.assert_allclose(rows, truth.timesteps([5], 8), atol=truth.BOUND["float32"], rtol=0)


def test_real_positions_are_exact_up_to_the_rounding_of_frequencies():
    spec = phasor.Spec("timestep-sin-cos", dim=8)
    positions = [0.1, 999.75, 1e6 + 0.5, 131072]
    rows = phasor.encode(spec, positions, dtype="float64")
    np.testing.assert_allclose(rows, truth.timesteps(positions, 8), atol=1e-12, rtol=0)


@pytest.mark.parametrize("position", [2**62 + 1, -(2**63), 2**53 + 1, 1e15 + 0.125])
def test_the_largest_positions_turn_exactly(position):
    spec = phasor.Spec("timestep-sin-cos", dim=8)
    row = phasor.encode(spec, position, dtype="float64")[0]
    for pair in spec.resolve().pairs:
        angle = 2 * truth.mpmath.pi * truth.fraction(Fraction(position) * pair.turns % 1)
        assert row[pair.columns[0]] == pytest.approx(float(truth.mpmath.sin(angle)), abs=5e-16)
        assert row[pair.columns[1]] == pytest.approx(float(truth.mpmath.cos(angle)), abs=5e-16)


@pytest.mark.parametrize("bad", [2**63, [2**63], range(2**64, 2**64 + 1), np.array([2**63], np.uint64)])
def test_positions_beyond_64_bits_are_refused(bad):
    with pytest.raises(phasor.InvalidArgument, match=r"positions.*64 bits"):
        phasor.encode({"preset": "timestep-sin-cos", "dim": 8}, bad)


BIG = 2**53 + 1  # float64 does not hold it


@pytest.mark.parametrize(
    "bad",
    [
        [BIG, 0.5],
        (0.5, -BIG),
        [0.5, 2**2000 + 1],
        [np.int64(BIG), 0.5],
        [BIG, np.float32(0.5)],
        [[BIG, 1], [0.5, 2]],
        [np.array([BIG]), np.array([0.5])],
        [np.uint64(2**63 - 1), np.int64(-1)],
    ],
    ids=repr,
)
def test_integers_that_a_list_of_real_numbers_would_round_are_refused(bad):
    with pytest.raises(phasor.InvalidArgument, match=r"positions: -?\d+ would be rounded to float64, .*; must be integers of one type"):
        phasor.encode({"preset": "timestep-sin-cos", "dim": 8}, bad)


@pytest.mark.parametrize("field", ["from_positions", "queries", "keys"])
def test_integers_beside_real_numbers_are_refused_by_name(field):
    with pytest.raises(phasor.InvalidArgument, match=f"^{field}: {BIG} would be rounded to float64"):
        if field == "from_positions":
            phasor.move_keys(np.zeros((2, 1, 16), np.float32), from_positions=[BIG, 0.5], positions=range(2), spec=HALF)
        else:
            phasor.attention_bias("alibi", heads=1, **{"queries": range(2), "keys": range(2)} | {field: [BIG, 0.5]})


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="long double is float64 here")
@pytest.mark.parametrize("bad", [np.longdouble(BIG), np.array([1, BIG], np.longdouble), [np.longdouble("1e4000")], [BIG, np.longdouble(0.5)], np.longdouble("0.1")], ids=repr)
def test_long_doubles_that_float64_does_not_hold_are_refused(bad):
    with pytest.raises(phasor.InvalidArgument, match=r"positions: "):
        phasor.encode({"preset": "timestep-sin-cos", "dim": 8}, bad)


def test_real_and_large_positions_that_float64_holds_are_taken_together():
    spec = {"preset": "timestep-sin-cos", "dim": 8}
    wanted = phasor.encode(spec, np.array([2.0**53, 2.0**53 + 2, -(2.0**60), 0.5]))
    for positions in ([2**53, 2**53 + 2, -(2**60), 0.5], [np.longdouble(2) ** 53, 2**53 + 2, -(2**60), 0.5], [BIG + 1, 0.5]):
        rows = phasor.encode(spec, positions)
        assert rows.tobytes() == (wanted if len(positions) == 4 else wanted[[1, 3]]).tobytes()


@pytest.mark.parametrize("bad", [None, True, "1", object(), [None], np.array(["a"]), np.array([1j]), [[1], [2, 3]]])
def test_what_is_no_position_is_refused(bad):
    with pytest.raises((TypeError, ValueError)):
        phasor.encode({"preset": "timestep-sin-cos", "dim": 8}, bad)


def test_positions_with_a_batch_and_axes(client):
    spec = {"preset": "timestep-sin-cos", "dim": 8}
    rows = client.encode(spec, np.arange(6).reshape(2, 3))
    assert rows.shape == (2, 3, 8)
    assert truth.bytes_of(rows) == truth.bytes_of(client.encode(spec, range(6)))
    grid = client.encode({"preset": "grid-2d-concat", "dim": 16}, phasor.Grid(2, range(0, 6, 2)))
    pairs = np.array([[y, x] for y in range(2) for x in range(0, 6, 2)])
    assert truth.bytes_of(grid) == truth.bytes_of(client.encode({"preset": "grid-2d-concat", "dim": 16}, pairs))
    assert truth.bytes_of(grid) == truth.bytes_of(client.encode({"preset": "grid-2d-concat", "dim": 16}, pairs.tolist()))


# --- ownership ---


def test_results_own_their_memory():
    rows = phasor.encode({"preset": "transformer", "dim": 64}, range(1000))
    copy, part = rows.copy(), rows[500]
    del rows
    for _ in range(20):
        gc.collect()
        phasor.encode({"preset": "transformer", "dim": 64}, range(1000, 2000))
    assert np.array_equal(part, copy[500])


def test_calls_keep_no_reference(rng, client):
    x, positions = tensor(rng), np.arange(7)
    before = sys.getrefcount(x), sys.getrefcount(positions)
    for _ in range(10):
        client.apply_rope(x, positions=positions, spec=HALF)
        with pytest.raises(phasor.InvalidArgument):
            client.apply_rope(x, x, np.zeros(3), positions=positions, spec=HALF)
    assert (sys.getrefcount(x), sys.getrefcount(positions)) == before
    gone = weakref.ref(x)
    del x
    assert gone() is None


def test_clients_and_specs_can_be_collected(phasor_server):
    client = phasor.Client(phasor_server.target)
    assert client.health()
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
