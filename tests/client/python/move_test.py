# SPDX-License-Identifier: Apache-2.0
"""Moves of keys where they lie: numbers as truth.py has them, from every kind of client and array."""

import asyncio
import dataclasses
import json

import ml_dtypes
import numpy as np
import pytest
import truth

import phasor

PAGES, PAGE_SIZE, HEADS, LANES = 4, 8, 2, 64
SPEC = phasor.Spec("llama-3", head_dim=LANES)
FLOATS = ("float32", "bfloat16")
# Tokens of a sequence: 12 from the second place of page 2 on, then in page 0.
TABLE, FIRST, COUNT, FROM, TO = [2, 0], 1, 12, 1000, 40


def dtype_of(code):
    return np.dtype(getattr(ml_dtypes, code, code))


def layout(code="float32", **changes):
    return phasor.KeyLayout("nhd", code, pages=PAGES, page_size=PAGE_SIZE, heads=HEADS, head_dim=LANES, **changes)


def group(**changes):
    run = phasor.KeyRun(block_table=TABLE, first=FIRST, count=COUNT, from_=FROM, to=TO)
    return phasor.KeyGroup([dataclasses.replace(run, **changes)])


def one_layer(code="float32", **changes):
    """The arguments of a move of one layer, in place."""
    call = {"layouts": [layout(code)], "specs": [phasor.KeySpec(SPEC)], "layers": [phasor.KeyLayer(spec=0)]}
    return call | {"groups": [group()], "mode": "move"} | changes


def slots(table=TABLE, first=FIRST):
    places = range(first, first + COUNT)
    return [table[place // PAGE_SIZE] * PAGE_SIZE + place % PAGE_SIZE for place in places]


def rows(cache):
    return cache.reshape(PAGES * PAGE_SIZE, HEADS, LANES)


def plain_keys():
    return np.random.default_rng(2).standard_normal((COUNT, HEADS, LANES))


def filled(code, positions=range(FROM, FROM + COUNT)):
    """A cache with keys that were rotated by `positions`, and other numbers elsewhere."""
    cache = np.random.default_rng(3).standard_normal((PAGES, PAGE_SIZE, HEADS, LANES)).astype(dtype_of(code))
    rows(cache)[slots()] = truth.rotated(plain_keys(), positions, 500000.0)
    return cache


def check_moved(cache, code, where=None):
    wanted = truth.rotated(plain_keys(), range(TO, TO + COUNT), 500000.0)
    got = rows(cache)[where or slots()].astype(np.float64)
    np.testing.assert_allclose(got, wanted, atol=2 * truth.BOUND[code])  # keys were rounded before, too


@pytest.mark.parametrize("code", FLOATS)
def test_moves_in_place(client, code):
    cache = filled(code)
    before = cache.copy()
    result = client.move_paged([cache], **one_layer(code))
    check_moved(cache, code)
    others = sorted(set(range(PAGES * PAGE_SIZE)) - set(slots()))
    assert rows(cache)[others].tobytes() == rows(before)[others].tobytes()
    assert result.tokens == COUNT and result.moved_bytes == COUNT * HEADS * LANES * dtype_of(code).itemsize
    assert result.fingerprints == ((SPEC.fingerprint, SPEC.fingerprint),) and result.differences == ()


def test_copies_to_another_pool_and_keeps_the_source(client):
    source, target = filled("bfloat16"), np.zeros((PAGES, PAGE_SIZE, HEADS, LANES), ml_dtypes.bfloat16)
    before = source.copy()
    layers = [phasor.KeyLayer(spec=0, to_place=phasor.KeyPlace(pool=1))]
    call = one_layer("bfloat16", layers=layers, groups=[group(to_block_table=[1, 3], to_first=0)])
    client.move_paged([source, target], **call | {"mode": "copy_on_write"})
    assert source.tobytes() == before.tobytes()
    where = slots([1, 3], 0)
    check_moved(target, "bfloat16", where)
    assert not rows(target)[sorted(set(range(PAGES * PAGE_SIZE)) - set(where))].any()


def test_layers_without_a_spec_are_copied(client):
    source, target = filled("float32"), np.zeros((PAGES, PAGE_SIZE, HEADS, LANES), np.float32)
    layers = [phasor.KeyLayer(to_place=phasor.KeyPlace(pool=1))]
    client.move_paged([source, target], **one_layer(specs=[], layers=layers) | {"mode": "copy_on_write"})
    assert rows(target)[slots()].tobytes() == rows(source)[slots()].tobytes()


def test_layers_turn_as_those_of_a_model(client):
    config = {"model_type": "granite_swa", "head_dim": LANES, "num_hidden_layers": 3, "layer_rope_theta": [500000.0, 10000.0, 0]}
    pools = [filled("float32") for _ in range(3)]
    before = pools[0].copy()
    layers = [phasor.KeyLayer(spec=0, place=phasor.KeyPlace(pool=i), model_layer=i) for i in range(3)]
    pin = client.resolve_model(config)[""].fingerprint
    specs = [phasor.KeySpec({"config_json": json.dumps(config)}, fingerprint=pin)]
    result = client.move_paged(pools, **one_layer(layers=layers, specs=specs))
    check_moved(pools[0], "float32")
    other = before.copy()
    client.move_paged([other], **one_layer(specs=[phasor.KeySpec(SPEC.replace(rope_theta=10000.0))]))
    assert pools[1].tobytes() == other.tobytes()
    assert pools[2].tobytes() == before.tobytes()
    assert result.fingerprints == ((pin, pin),)


def test_slots_say_the_same_as_runs(client):
    runs, single = filled("float32"), filled("float32")
    client.move_paged([runs], **one_layer())
    positions = {"from_positions": range(FROM, FROM + COUNT), "positions": np.arange(TO, TO + COUNT, dtype=np.int32)}
    tokens = phasor.KeyGroup(slots=phasor.KeySlots(np.array(slots()), **positions))
    client.move_paged([single], **one_layer(groups=[tokens]))
    assert runs.tobytes() == single.tobytes()


def token_slots(**positions):
    return [phasor.KeyGroup(slots=phasor.KeySlots(slots(), **positions))]


def test_positions_of_several_axes_have_a_row_for_each_token(client):
    """With equal numbers on both axes, and then with others, as lists and as arrays."""
    specs = [phasor.KeySpec(phasor.Spec("rope-2d", head_dim=LANES))]
    old = [[FROM + i, FROM + i] for i in range(COUNT)]
    for new in ([[TO + i, TO + i] for i in range(COUNT)], [[TO + i, 7 * i] for i in range(COUNT)]):
        lists, arrays = filled("float32"), filled("float32")
        client.move_paged([lists], **one_layer(specs=specs, groups=token_slots(from_positions=old, positions=new)))
        columns = {"from_positions": np.array(old).T.copy().T, "positions": np.array(new, np.int32)}
        client.move_paged([arrays], **one_layer(specs=specs, groups=token_slots(**columns)))
        wanted = phasor.move_keys(rows(filled("float32"))[slots()], from_positions=old, positions=new, spec=specs[0].spec)
        assert rows(lists)[slots()].tobytes() == wanted.tobytes() and arrays.tobytes() == lists.tobytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"from_positions": np.zeros((2, COUNT), int)}, r"from_positions: shape \[2, 12\]; must be \[12\] or \[12, axes\], as slots are"),
        ({"positions": np.zeros((2, COUNT), int)}, r"positions: shape \[2, 12\]; must be \[12\] or \[12, axes\]"),
        ({"positions": range(COUNT * 2)}, r"positions: shape \[24\]; must be \[12\] or \[12, axes\]"),
        ({"positions": np.zeros((COUNT, 2, 1), int)}, r"positions: shape \[12, 2, 1\]; must be \[12\] or"),
        ({"positions": 3}, r"positions: shape \[\]; must be \[12\] or"),
        ({"positions": [[1], [2, 3]]}, r"positions: lists of different lengths; must be one row per token"),
        ({"positions": np.ma.array(range(COUNT), mask=[1] + [0] * 11)}, r"positions: an array with masked elements; must have none"),
        ({"slots": np.reshape(slots(), (2, 6))}, r"slots: shape \[2, 6\]; must have one dimension"),
        ({"to_slots": np.reshape(slots(), (12, 1))}, r"to_slots: shape \[12, 1\]; must have one dimension"),
    ],
)
def test_arrays_of_slots_have_the_shape_of_their_tokens(changes, message):
    cache = filled("float32")
    positions = {"from_positions": range(COUNT), "positions": range(COUNT)}
    tokens = phasor.KeyGroup(slots=phasor.KeySlots(**{"slots": slots(), **positions, **changes}))
    with pytest.raises(phasor.InvalidArgument, match=r"groups\[0\].slots." + message):
        phasor.move_paged([cache], **one_layer(groups=[tokens]))
    assert cache.tobytes() == filled("float32").tobytes()


@pytest.mark.parametrize("table", ["block_table", "to_block_table"])
def test_block_tables_have_one_dimension(table):
    """Those of a whole batch, [sequences, pages], would otherwise be one long table."""
    call = one_layer(groups=[group(**{table: np.array([TABLE, [1, 3]])})], mode="copy_on_write")
    with pytest.raises(phasor.InvalidArgument, match=rf"groups\[0\].runs\[0\].{table}: shape \[2, 2\]; must have one dimension"):
        phasor.move_paged([filled("float32")], **call)


def test_keys_move_from_one_spec_to_another(client):
    other = SPEC.replace(rope_theta=10000.0)
    cache = filled("float32")
    rows(cache)[slots()] = truth.rotated(plain_keys(), range(FROM, FROM + COUNT), 10000.0)
    result = client.move_paged([cache], **one_layer(specs=[phasor.KeySpec(SPEC, from_spec=other)]))
    check_moved(cache, "float32")
    assert result.fingerprints == ((SPEC.fingerprint, other.fingerprint),)


@pytest.mark.parametrize("code", FLOATS)
def test_compare_finds_a_wrong_base(client, code):
    moved = filled(code, range(TO, TO + COUNT))
    pools = [filled(code), moved]
    for pool in pools:
        pool.flags.writeable = False  # nothing is written
    layers = [phasor.KeyLayer(spec=0, to_place=phasor.KeyPlace(pool=1))]
    right, = client.move_paged(pools, **one_layer(code, layers=layers) | {"mode": "compare"}).differences
    assert right.bad_rows == 0 and right.first_bad_token is None and 0 < right.relative_rms < truth.BOUND[code]
    wrong_spec = [phasor.KeySpec(SPEC.replace(rope_theta=10000.0))]
    wrong, = client.move_paged(pools, **one_layer(code, layers=layers, specs=wrong_spec) | {"mode": "compare"}).differences
    assert wrong.bad_rows == COUNT * HEADS and wrong.relative_rms > 0.3 and wrong.max_abs > 1
    assert (wrong.first_bad_token, wrong.first_bad_slot, wrong.first_bad_head) == (0, slots()[0], 0)
    assert wrong.relative_rms == wrong.rms / wrong.reference_rms
    patient = client.move_paged(pools, **one_layer(code, layers=layers, specs=wrong_spec) | {"mode": "compare", "tolerance": 10.0})
    assert patient.differences[0].bad_rows == 0


# --- pools ---


@pytest.mark.parametrize("view", [np.uint8, np.int8, np.bool_, np.uint16, np.float64])
def test_pools_are_bytes_of_any_type(view):
    cache, same = filled("bfloat16"), filled("bfloat16")
    phasor.move_paged([cache], **one_layer("bfloat16"))
    phasor.move_paged([same.reshape(-1).view(view)], **one_layer("bfloat16"))
    assert cache.tobytes() == same.tobytes()


def test_pools_may_be_buffers_and_shared_memory(staged):
    cache, same = filled("float32"), bytearray(filled("float32").tobytes())
    phasor.move_paged([cache], **one_layer())
    phasor.move_paged([same], **one_layer())
    shared = staged.empty(cache.shape)
    shared[...] = filled("float32")
    staged.move_paged([shared], **one_layer())
    assert cache.tobytes() == bytes(same) == shared.tobytes()


def test_pools_that_cannot_be_changed_are_refused(client):
    cache = filled("float32")
    before = cache.tobytes()
    read_only = cache.view()
    read_only.flags.writeable = False
    for pool, message in (
        (read_only, r"pools\[1\]: a read-only array; pass a writable one"),
        (cache.tobytes(), r"pools\[1\]: bytes is read-only; pass a writable array"),
        (cache[:, ::2], r"pools\[1\]\.strides: not contiguous"),
        (cache[::-1], r"pools\[1\]\.strides: not contiguous"),
        (np.array([3, None]), r"pools\[1\]\.dtype: object"),
        (np.zeros(3, [("a", "i4"), ("b", "O")]), r"pools\[1\]\.dtype: "),
    ):
        with pytest.raises(phasor.InvalidArgument, match=message):
            client.move_paged([np.zeros(8), pool], **one_layer(layers=[phasor.KeyLayer(spec=0, place=phasor.KeyPlace(1))]))
    with pytest.raises(TypeError, match=r"pools\[0\]: int"):
        client.move_paged([3], **one_layer())
    with pytest.raises(TypeError, match="pools: ndarray; must be a list of arrays"):
        client.move_paged(cache, **one_layer())
    assert cache.tobytes() == before


# --- errors ---


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"groups": [group(block_table=[2, 9])]}, "item.groups[0].runs[0].block_table[1]"),
        ({"layers": [phasor.KeyLayer(spec=3)]}, "item.layers[0].spec"),
        ({"layouts": [layout(row_bytes=1)]}, "item.layouts[0].row_bytes"),
        ({"tolerance": -1.0, "mode": "compare"}, "item.tolerance"),
        ({"layouts": [layout("bf16")]}, "layouts[0].code"),
        ({"specs": [phasor.KeySpec("llama-x")]}, "specs[0].spec.preset"),
        ({"groups": [group(count=1 << 70)]}, "groups[0].runs[0].count"),
        ({"groups": [group(block_table=np.array([1 << 63], np.uint64))]}, "groups[0].runs[0].block_table"),
        ({"mode": "swap"}, "mode"),
    ],
)
def test_errors_name_the_field(client, changes, field):
    cache = filled("float32")
    with pytest.raises(phasor.Error) as caught:
        client.move_paged([cache], **one_layer(**changes))
    assert caught.value.field == field and cache.tobytes() == filled("float32").tobytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": [group(from_=1.5)]}, r"groups\[0\].runs\[0\].from: float; must be an integer"),
        ({"groups": [group(block_table=[1.5])]}, r"groups\[0\].runs\[0\].block_table: elements of type float64; must be integers"),
        ({"layouts": {"name": "nhd"}}, r"layouts: dict; must be a list of phasor.KeyLayout"),
        ({"layers": [phasor.KeyLayer(place=3)]}, r"layers\[0\].place: int; must be a phasor.KeyPlace"),
        ({"layers": [phasor.KeyLayer(copy_values="no")]}, r"layers\[0\].copy_values: str; must be a bool"),
        ({"layouts": [layout(scale="1/2")]}, r"layouts\[0\].scale: str; must be a number"),
        ({"specs": [phasor.KeySpec(SPEC, fingerprint=5)]}, r"specs\[0\].fingerprint: int; must be a str"),
    ],
)
def test_values_of_wrong_types_are_type_errors(changes, message):
    with pytest.raises(TypeError, match=message):
        phasor.move_paged([filled("float32")], **one_layer(**changes))


def test_pins_hold(client):
    cache = filled("float32")
    for changes in ({"specs": [phasor.KeySpec(SPEC, fingerprint="0" * 64)]}, {"pins": phasor.Pins(numerics_version=999)}):
        with pytest.raises(phasor.FailedPrecondition):
            client.move_paged([cache], **one_layer(**changes))
    with pytest.raises(phasor.FailedPrecondition):
        phasor.Client(client._target, pins=phasor.Pins(numerics_version=999)).move_paged([cache], **one_layer())
    client.move_paged([cache], **one_layer(specs=[phasor.KeySpec(SPEC, fingerprint=SPEC.fingerprint)]))
    check_moved(cache, "float32")


# --- every field arrives ---


LAYOUT_FIELDS = [each.name for each in dataclasses.fields(phasor.KeyLayout) if each.type.startswith("int")]
RUN_FIELDS = ["first", "count", "to_first"]
LAYER_FIELDS = ["layout", "spec", "group", "layer", "to_layout"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"layouts": [dataclasses.replace(layout(), **{name: -5})]}, f"layouts[0].{name}") for name in LAYOUT_FIELDS]
    + [({"groups": [group(**{name: -5})]}, f"groups[0].runs[0].{name}") for name in RUN_FIELDS]
    + [({"layers": [phasor.KeyLayer(**{"spec": 0, name: -5})]}, f"layers[0].{name}") for name in LAYER_FIELDS]
    + [({"layers": [phasor.KeyLayer(spec=0, place=phasor.KeyPlace(-5))]}, "layers[0].place.pool")]
    + [({"layers": [phasor.KeyLayer(spec=0, place=phasor.KeyPlace(0, -5))]}, "layers[0].place.offset_bytes")]
    + [({"layouts": [layout("float8_e4m3", scale=-5)]}, "layouts[0].scale")],
)
def test_numbers_arrive_in_the_fields_of_their_names(changes, field):
    with pytest.raises(phasor.InvalidArgument, match=": -5; must|places .-5, ") as caught:
        phasor.move_paged([filled("float32")], **one_layer(**{"mode": "copy_on_write", **changes}))
    assert caught.value.field == f"item.{field}"


def test_scales_of_rows_and_layouts_by_distances(client):
    """INT8 rows with a scale each behind them."""
    row = LANES + 4
    scales = phasor.KeyScales(offset=LANES, page_bytes=PAGE_SIZE * HEADS * row, slot_bytes=HEADS * row, head_bytes=row)
    distances = {"page_bytes": PAGE_SIZE * HEADS * row, "slot_bytes": HEADS * row, "head_bytes": row}
    int8 = phasor.KeyLayout("", "int8", PAGES, PAGE_SIZE, HEADS, LANES, **distances, scales=scales)
    keys = rows(filled("float32"))
    largest = np.abs(keys).max(-1, keepdims=True).astype(np.float32)
    cache = np.zeros((PAGES * PAGE_SIZE, HEADS, row), np.uint8)
    cache[..., :LANES] = np.round(keys / largest * 127).astype(np.int8).view(np.uint8)
    cache[..., LANES:] = (largest / 127).view(np.uint8)
    client.move_paged([cache], **one_layer(layouts=[int8]))
    values = cache[..., :LANES].view(np.int8) * cache[..., LANES:].copy().view(np.float32)
    wanted = truth.rotated(plain_keys(), range(TO, TO + COUNT), 500000.0)
    np.testing.assert_allclose(values[slots()], wanted, atol=0.06)


def test_slot_positions_make_a_move_repeatable(client):
    cache, positions = filled("float32"), np.zeros(PAGES * PAGE_SIZE, np.uint32)
    call = one_layer(groups=[dataclasses.replace(group(), slot_positions=phasor.KeyPlace(pool=1))])
    with pytest.raises(phasor.FailedPrecondition) as caught:
        client.move_paged([cache, positions], **call)
    assert caught.value.field == "item.groups[0].slot_positions" and cache.tobytes() == filled("float32").tobytes()
    positions[slots()] = range(FROM, FROM + COUNT)
    assert client.move_paged([cache, positions], **call).tokens == COUNT
    check_moved(cache, "float32")
    assert (positions[slots()] == range(TO, TO + COUNT)).all() and np.count_nonzero(positions) == COUNT
    assert client.move_paged([cache, positions], **call).tokens == 0
    check_moved(cache, "float32")


def test_layers_of_one_tensor_and_values(client):
    """Two layers in one tensor of a name with values, to another layout of the same sizes."""
    names = [phasor.KeyLayout(name, "float32", PAGES, PAGE_SIZE, HEADS, LANES, layers=2) for name in ("vllm-blnhc", "trtllm")]
    source = np.random.default_rng(5).standard_normal((PAGES, 2, PAGE_SIZE, HEADS, 2 * LANES)).astype(np.float32)
    target = np.zeros((PAGES, 2, 2, HEADS, PAGE_SIZE, LANES), np.float32)
    there = phasor.KeyPlace(pool=1)
    layers = [phasor.KeyLayer(layer=i, to_place=there, to_layout=1, copy_values=i == 1) for i in range(2)]
    call = {"layouts": names, "layers": layers, "groups": [phasor.KeyGroup([phasor.KeyRun([3], count=PAGE_SIZE)])]}
    client.move_paged([source, target], **call)
    for i in range(2):
        keys, values = source[3, i, ..., :LANES], source[3, i, ..., LANES:]
        assert (target[3, i, 0].swapaxes(0, 1) == keys).all()
        assert (target[3, i, 1].swapaxes(0, 1) == (values if i == 1 else 0)).all()


def test_coroutines(phasor_server):
    async def move(cache):
        async with phasor.AsyncClient(phasor_server.target) as client:
            return await client.move_paged([cache], **one_layer())

    cache = filled("float32")
    assert asyncio.run(move(cache)).tokens == COUNT
    check_moved(cache, "float32")
