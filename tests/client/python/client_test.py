# SPDX-License-Identifier: Apache-2.0
"""Calls of Client: what they answer, that every target answers the same, and their errors."""

import contextlib
import json
import pickle
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
import truth

import phasor
from phasor import testing

LLAMA = phasor.Spec("llama-3")


@pytest.fixture
def q():
    return np.random.default_rng(1).standard_normal((6, 4, 128)).astype(np.float32)


def test_the_same_numbers_as_the_command_line(q, tmp_path):
    np.save(tmp_path / "q.npy", q)
    command = [testing.program("phasor"), "rope", "--preset", "llama-3", "--range", "100:106"]
    subprocess.run([*command, "--input", tmp_path / "q.npy", "--output", tmp_path / "y.npy"], check=True, timeout=60)
    assert phasor.apply_rope(q, positions=range(100, 106), spec="llama-3").tobytes() == np.load(tmp_path / "y.npy").tobytes()


def test_inverse_layout_and_spec_forms_agree(client, q):
    y = client.apply_rope(q, positions=range(6), spec=LLAMA)
    for same in (
        client.apply_rope(q, positions=range(6), preset="llama-3"),
        client.apply_rope(q, positions=range(6), spec={"preset": "llama-3"}),
        client.apply_rope(q, positions=range(6), config={"model_type": "llama", "rope_theta": 500000.0, "head_dim": 128}),
        client.apply_rope(q.transpose(1, 0, 2), positions=range(6), spec=LLAMA, layout="htd").transpose(1, 0, 2),
        client.apply_rope(q[None], positions=range(6), spec=LLAMA)[0],
    ):
        assert truth.bytes_of(same) == truth.bytes_of(y)
    np.testing.assert_allclose(client.apply_rope(y, positions=range(6), spec=LLAMA, inverse=True), q, atol=1e-6)
    np.testing.assert_allclose(y, truth.rotated(q, range(6), 500000.0), atol=truth.BOUND["float32"])


def test_interleaved_pairs(client, q):
    y = client.apply_rope(q, positions=range(6), spec="rope-interleaved")
    np.testing.assert_allclose(y, truth.rotated(q, range(6), interleaved=True), atol=truth.BOUND["float32"])


def test_cached_keys_move_as_if_rotated_anew(client, q):
    cached = phasor.apply_rope(q, positions=range(6), spec=LLAMA)
    moved = client.move_keys(cached, from_positions=range(6), positions=range(1000, 1006), spec=LLAMA)
    np.testing.assert_allclose(moved, truth.rotated(q, range(1000, 1006), 500000.0), atol=1e-6)
    client.move_keys(cached, from_positions=range(6), positions=range(1000, 1006), spec=LLAMA, inplace=True)
    assert cached.tobytes() == moved.tobytes()
    linear = phasor.Spec("llama-3", rope_scaling={"linear": {"factor": 2.0}})
    scaled = client.move_keys(moved, from_positions=range(1000, 1006), positions=range(6), spec=linear, from_spec=LLAMA)
    np.testing.assert_allclose(scaled, truth.rotated(q, [p / 2 for p in range(6)], 500000.0), atol=1e-6)


def test_paged_caches_hold_what_the_slots_say(client, q):
    keys, values = q.astype(ml_dtypes.bfloat16), (q * 2).astype(ml_dtypes.bfloat16)
    key_cache, value_cache = (np.zeros((4, 4, 4, 128), ml_dtypes.bfloat16) for _ in range(2))
    slots = np.array([9, 0, -1, 15, 3, 7])
    client.write_paged(
        keys, values, positions=range(6), spec=LLAMA, key_cache=key_cache, value_cache=value_cache, slot_mapping=slots
    )
    rotated = phasor.apply_rope(keys, positions=range(6), spec=LLAMA)
    wanted_keys, wanted_values = (np.zeros((16, 4, 128), ml_dtypes.bfloat16) for _ in range(2))
    written = slots >= 0
    wanted_keys[slots[written]], wanted_values[slots[written]] = rotated[written], values[written]
    assert key_cache.tobytes() == wanted_keys.tobytes() and value_cache.tobytes() == wanted_values.tobytes()


def test_paged_caches_of_float8_have_a_scale_for_keys_and_one_for_values(client, q):
    x, float8 = q.astype(ml_dtypes.bfloat16), ml_dtypes.float8_e4m3fn
    call = {"positions": range(6), "spec": LLAMA}
    caches = {"key_cache": np.zeros((1, 6, 4, 128), float8), "value_cache": np.zeros((1, 6, 4, 128), float8), "slot_mapping": np.arange(6)}
    client.write_paged(x, x, **call, **caches, inv_scale=(2.0, 4.0))
    keys = phasor.apply_rope(x, **call, out_dtype="float8_e4m3", inv_scale=2.0)
    assert caches["key_cache"].tobytes() == keys.tobytes() and caches["value_cache"].tobytes() == (x * 4).astype(float8).tobytes()
    with pytest.raises(phasor.InvalidArgument, match="inv_scale: 3 numbers"):
        client.write_paged(x, x, **call, **caches, inv_scale=(1.0, 2.0, 3.0))


@pytest.mark.parametrize("arguments", [{"inplace": True, "out": 0}, {"inplace": True, "out_dtype": "float32"}, {"out": 0, "out_dtype": "float32"}])
def test_there_is_one_way_to_say_where_results_go(client, q, arguments):
    with pytest.raises(phasor.InvalidArgument, match="set together with out"):
        client.apply_rope(q, positions=range(6), spec=LLAMA, **arguments)


def test_encodings_add_to_embeddings(client):
    spec = {"preset": "transformer", "dim": 16}
    embeddings = np.random.default_rng(2).standard_normal((2, 5, 16)).astype(np.float32)
    positions = np.arange(10).reshape(2, 5)
    both = client.encode(spec, positions, add_to=embeddings, scale=4.0)
    assert both.shape == (2, 5, 16) and both.dtype == np.float32
    np.testing.assert_allclose(both, 4 * embeddings + client.encode(spec, positions), atol=1e-6)
    client.encode(spec, positions, add_to=embeddings, scale=4.0, out=embeddings)
    assert embeddings.tobytes() == both.tobytes()


@pytest.mark.parametrize(
    ("form", "shape"), [("cos_sin", (3, 2, 64)), ("cos_sin_duplicated", (3, 2, 128)), ("complex", (3, 64, 2)), ("matrix2x2", (3, 64, 2, 2))]
)
def test_rotary_tables(client, form, shape):
    form = {"matrix2x2": next(name for name in phasor._core.FORMS if name.startswith("matrix"))}.get(form, form)
    assert client.encode(LLAMA, range(3), form=form).shape == shape


@pytest.mark.parametrize("form", ["cos", "cos_sin", "complex"])
@pytest.mark.parametrize("positions", [np.arange(5), np.arange(15).reshape(3, 5)])
def test_tables_with_frequencies_of_each_head_take_an_output_of_their_shape(client, form, positions):
    spec = phasor.Spec("rope-half-split", head_dim=8, frequency_heads=2, family="explicit", inv_freq=[1.0, 0.5, 0.25, 0.125, 1.0, 0.1, 0.01, 0.001])
    table = client.encode(spec, positions, form=form)
    assert table.shape[: positions.ndim + 1] == (*positions.shape, 2)
    out = np.empty_like(table)
    assert client.encode(spec, positions, form=form, out=out) is out
    assert np.array_equal(out, table)


def test_attention_biases(client):
    bias = client.attention_bias("alibi", heads=8, queries=[10], keys=range(11))
    slopes = 2.0 ** -np.arange(1, 9)
    np.testing.assert_allclose(bias[:, 0], -slopes[:, None] * np.arange(10, -1, -1), rtol=1e-7)
    table = np.random.default_rng(3).standard_normal((32, 2)).astype(np.float32)
    t5 = client.attention_bias("t5", heads=2, queries=range(4), keys=range(4), table=table, num_buckets=32, max_distance=128, bidirectional=True)
    assert t5.shape == (2, 4, 4)
    np.testing.assert_array_equal(t5[:, 0, 0], table[0])
    scores = np.ones((8, 1, 11), np.float32)
    assert client.attention_bias("alibi", heads=8, queries=[10], keys=range(11), add_to=scores, out=scores) is scores
    np.testing.assert_allclose(scores, 1 + bias)


# --- many calls ---


def test_calls_of_a_batch_have_their_own_results_and_errors(client, q):
    with client.batch() as batch:
        first = batch.apply_rope(q, positions=range(6), spec=LLAMA)
        wrong = batch.apply_rope(q, positions=range(5), spec=LLAMA)
        rows = batch.encode({"preset": "transformer", "dim": 8}, range(3))
        unknown = batch.encode({"preset": "transformer"}, range(3))
        with pytest.raises(phasor.FailedPrecondition, match="not run"):
            first.result()
    assert first.result().tobytes() == phasor.apply_rope(q, positions=range(6), spec=LLAMA).tobytes()
    assert rows.result().shape == (3, 8) and rows.exception() is None
    with pytest.raises(phasor.InvalidArgument, match=r"items\[1\].positions"):
        wrong.result()
    assert isinstance(unknown.exception(), phasor.InvalidArgument)


def test_a_result_that_cannot_be_made_leaves_the_others(client, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    spec = {"preset": "transformer", "dim": 8}
    with client.batch() as batch:
        handles = [batch.encode(spec, range(3), dtype=dtype) for dtype in ("float32", "bfloat16", "float32")]
    with client.stream(timeout=20) as stream:
        for dtype in ("float32", "bfloat16", "float32"):
            stream.encode(spec, range(3), dtype=dtype)
        answers = list(stream)
    for first, without, last in (handles, answers):
        assert first.result().tobytes() == last.result().tobytes() == phasor.encode(spec, range(3)).tobytes()
        with pytest.raises(phasor.InvalidArgument, match="install ml_dtypes"):
            without.result()


def test_a_batch_that_raises_makes_no_call(client, q):
    before = q.copy()
    with pytest.raises(KeyError), client.batch() as batch:
        batch.apply_rope(q, positions=range(6), spec=LLAMA, inplace=True)
        raise KeyError("mine")
    assert np.array_equal(q, before)


def test_streams_answer_more_calls_than_either_side_holds(client, q):
    wanted = {}
    with client.stream(timeout=60) as stream:
        for step in range(100):
            spec = LLAMA if step != 7 else phasor.Spec("rope-half-split", head_dim=64)
            wanted[stream.apply_rope(q, positions=range(step, step + 6), spec=spec)] = step
        for answer in stream:
            step = wanted.pop(answer.id)
            if step == 7:
                assert isinstance(answer.exception(), phasor.InvalidArgument)
                continue
            assert answer.result().tobytes() == phasor.apply_rope(q, positions=range(step, step + 6), spec=LLAMA).tobytes()
        with pytest.raises(phasor.InvalidArgument, match="not both"):
            stream.encode("transformer", range(3))
    assert not wanted
    with client.stream() as stream:
        stream.encode({"preset": "transformer", "dim": 8}, np.arange(6).reshape(2, 3))
        assert [answer.result().shape for answer in stream] == [(2, 3, 8)]


def test_a_stream_may_be_left_early(client, q):
    with pytest.raises(KeyError), client.stream() as stream:
        stream.apply_rope(q, positions=range(6), spec=LLAMA)
        raise KeyError("mine")
    assert client.health()


def test_large_tensors_go_in_chunks_and_report_progress(client):
    x = np.random.default_rng(4).standard_normal((2, 500, 4, 128)).astype(np.float32)
    seen = []
    y = client.apply_rope_large(
        x, positions=range(500), spec=LLAMA, chunk_bytes=100_000, progress=lambda *numbers: seen.append(numbers), timeout=60
    )
    assert y.tobytes() == phasor.apply_rope(x, positions=range(500), spec=LLAMA).tobytes()
    assert seen[-1] == (1000, 1000) and len(seen) > 10 and [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_an_exception_of_the_progress_function_ends_the_call(client):
    x = np.zeros((5000, 4, 128), np.float32)

    def progress(done, every):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        client.apply_rope_large(x, positions=range(5000), spec=LLAMA, chunk_bytes=10_000, progress=progress, timeout=60)


# --- memory, tables, the server ---


def test_shared_memory_is_an_array_of_any_type(client, phasor_server):
    for dtype in ("float32", "bfloat16"):
        x = client.empty((64, 4, 128), dtype)
        assert x.shape == (64, 4, 128) and x.dtype.name == dtype
        x[...] = np.random.default_rng(5).standard_normal(x.shape)
        wanted = phasor.apply_rope(np.array(x), positions=range(64), spec=LLAMA)
        client.apply_rope_(x, positions=range(64), spec=LLAMA)
        assert x.tobytes() == wanted.tobytes()
    part = x[3]
    del x
    assert part.sum() == part.sum()


def test_a_stream_that_has_ended_says_so(remote):
    x = np.ones((1, 2, 8), np.float32)
    for leave, why in ((None, "closed"), (KeyError, "cancelled")):
        stream = remote.stream()
        with contextlib.suppress(KeyError), stream:
            stream.apply_rope(x, positions=1, spec=LLAMA)
            if leave:
                raise leave
        with pytest.raises(phasor.FailedPrecondition, match=f"stream: {why}; open another"):
            stream.apply_rope(x, positions=1, spec=LLAMA)
        with pytest.raises(phasor.FailedPrecondition, match=f"stream: {why}"):
            list(stream)


def test_tables_are_a_mapping(remote):
    table = np.random.default_rng(6).standard_normal((10, 8)).astype(np.float32)
    with pytest.raises(phasor.InvalidArgument, match="values: an array with masked elements"):
        remote.tables["python-test"] = np.ma.masked_less(table, 0)
    remote.tables["python-test"] = table
    try:
        assert "python-test" in remote.tables and "python-test" in list(remote.tables) and len(remote.tables) >= 1
        found = remote.tables["python-test"]
        assert (found.shape, found.dtype) == ((10, 8), "float32")
        rows = remote.encode(None, [9, 0], table="python-test")
        assert rows.tobytes() == table[[9, 0]].tobytes()
        with pytest.raises(IndexError):
            remote.encode(None, [10], table="python-test")
        assert remote.encode(None, [10], table="python-test", clip=True).tobytes() == table[9:].tobytes()
    finally:
        del remote.tables["python-test"]
    with pytest.raises(KeyError, match=r"^name: "):
        remote.tables["python-test"]
    with pytest.raises(phasor.NotFound):
        del remote.tables["python-test"]


def test_a_target_is_text():
    with pytest.raises(TypeError, match="target: NoneType; must be a str"):
        phasor.Client(None)


def test_in_process_there_are_no_tables():
    with pytest.raises(NotImplementedError, match="tables"):
        list(phasor.Client().tables)


def test_servers_tell_about_themselves(client):
    info = client.info()
    assert info.numerics_version == phasor.numerics_version and info.version == phasor.__version__
    assert client.health() is True
    assert {preset.name for preset in client.presets()} == {preset.name for preset in phasor.presets()}


def test_pins_refuse_other_arithmetic(client, q):
    pinned = phasor.Pins(fingerprint=LLAMA.fingerprint, numerics_version=phasor.numerics_version)
    client.apply_rope(q, positions=range(6), spec=LLAMA, pins=pinned)
    with pytest.raises(phasor.FailedPrecondition, match="fingerprint"):
        client.apply_rope(q, positions=range(6), spec="llama-2", pins=pinned)
    for wrong in ("x", 3, {"backend": "cpu"}):
        with pytest.raises(TypeError, match="^pins: a .*; must be phasor.Pins"):
            client.apply_rope(q, positions=range(6), spec=LLAMA, pins=wrong)
        with pytest.raises(TypeError, match="^pins: a"):
            client.encode({"preset": "timestep-sin-cos", "dim": 4}, 3, pins=wrong)


@pytest.mark.parametrize("given", [{}, {"pins": None}])
def test_the_pins_of_a_client_hold_for_all_its_calls(client, q, given):
    rotation, move, rows = {"positions": range(6), "spec": LLAMA, **given}, {"from_positions": range(6)}, ({"preset": "transformer", "dim": 4}, 3)
    caches = {"key_cache": np.zeros((2, 3, 4, 128), np.float32), "value_cache": np.zeros((2, 3, 4, 128), np.float32)}
    refused = phasor.Client(client._target, pins=phasor.Pins(numerics_version=phasor.numerics_version + 1))
    for call in (
        lambda client: client.apply_rope(q, **rotation),
        lambda client: client.apply_rope_large(q, positions=range(6), spec=LLAMA),
        lambda client: client.move_keys(q, **move, **rotation),
        lambda client: client.write_paged(q, q, **caches, slot_mapping=np.arange(6), **rotation),
        lambda client: client.encode(*rows, **given),
        lambda client: client.attention_bias("alibi", heads=4, queries=[1], keys=range(2), **given),
    ):
        call(client)
        for other in (refused, pickle.loads(pickle.dumps(refused))):
            with pytest.raises(phasor.FailedPrecondition, match="numerics_version"):
                call(other)
    refused.apply_rope(q, **rotation | {"pins": phasor.Pins()})
    with refused.batch() as batch:
        handles = [batch.apply_rope(q, **rotation), batch.move_keys(q, **move, **rotation), batch.encode(*rows, **given)]
    with refused.stream() as rotations, refused.stream() as encodings:
        rotations.apply_rope(q, **rotation)
        rotations.move_keys(q, **move, **rotation)
        encodings.encode(*rows, **given)
        handles += [*rotations, *encodings]
    assert [type(handle.exception()) for handle in handles] == [phasor.FailedPrecondition] * 6


# --- errors ---


def test_errors_are_built_in_exceptions_with_code_and_field(client, q):
    with pytest.raises(ValueError) as caught:
        client.apply_rope(q, positions=range(5), spec=LLAMA)
    assert caught.value.field == "item.positions" and caught.value.code == "INVALID_ARGUMENT" and not caught.value.retryable
    with pytest.raises(LookupError, match='did you mean "llama-3"'):
        client.apply_rope(q, positions=range(6), spec="lama-3")


def test_nothing_is_written_by_a_call_that_fails(client, q):
    before = q.copy()
    with pytest.raises(phasor.InvalidArgument):
        client.apply_rope_(q, positions=[0, 1, 2, 3, 4, float("nan")], spec=LLAMA)
    assert np.array_equal(q, before)


def test_targets_that_are_wrong_or_away():
    with pytest.raises(ValueError):
        phasor.Client("ftp://x").health()
    with pytest.raises(ConnectionError) as caught:
        phasor.Client("unix:/nonexistent/phasor.sock", max_attempts=1).health(timeout=5)
    assert caught.value.retryable
    with pytest.raises(ValueError, match="channels"):
        phasor.Client(channels=0).health()


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("-inf")])
def test_a_timeout_that_is_over_or_no_number_does_not_wait(client, q, timeout):
    with pytest.raises(TimeoutError):
        client.apply_rope(q, positions=range(6), spec=LLAMA, timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        phasor.Client(timeout=timeout).health()


def test_every_status_has_a_class_that_is_its_built_in():
    import phasor._errors as errors

    builtin = {3: ValueError, 4: TimeoutError, 5: LookupError, 7: PermissionError, 8: MemoryError, 11: IndexError, 12: NotImplementedError}
    for code, kind in (builtin | {9: RuntimeError, 10: RuntimeError, 14: ConnectionError, 16: PermissionError}).items():
        error = errors.make(code, "a.b[1]: wrong; do")
        assert isinstance(error, kind) and isinstance(error, phasor.Error) and error.field == "a.b[1]"
        assert pickle.loads(pickle.dumps(error)).args == error.args
    assert type(errors.make(2, "x")) is phasor.Error and errors.make(2, "no field").field is None


# --- clients ---


def test_clients_are_picklable_and_close(client, q):
    copy = pickle.loads(pickle.dumps(client))
    assert repr(copy) == repr(client) and copy.health()
    copy.close()
    with pytest.raises(phasor.FailedPrecondition, match="closed"):
        copy.health()
    assert client.health()


def test_module_functions_use_the_client_of_the_block(remote, q, monkeypatch):
    calls = []
    monkeypatch.setattr(type(remote), "_rope", lambda self, tensors, *_: calls.append(self) or tensors[0])
    with phasor.use(remote):
        phasor.apply_rope(q, positions=range(6), spec=LLAMA)
        other = threading.Thread(target=lambda: phasor.apply_rope(q, positions=range(6), spec=LLAMA))
        other.start()
        other.join()
    phasor.apply_rope(q, positions=range(6), spec=LLAMA, client=remote)
    assert calls[0] is remote and calls[1] is not remote and calls[2] is remote


def test_connect_takes_the_server_of_the_environment(monkeypatch):
    monkeypatch.setenv("PHASOR_SERVER", "unix:/a")
    assert repr(phasor.connect()) == "Client('unix:/a')"
    monkeypatch.delenv("PHASOR_SERVER")
    assert repr(phasor.connect()) == "Client('inproc:')"


def test_resolved_specs_as_the_command_line_prints_them(client):
    out = subprocess.run([testing.program("phasor"), "resolve", "--preset", "llama-3.1-8b", "--json"], capture_output=True, check=True)
    said = json.loads(out.stdout)
    resolved = client.resolve("llama-3.1-8b")
    assert [pair["inv_freq"] for pair in said["pairs"]] == resolved.inv_freq.tolist()
    assert resolved.fingerprint == said["info"]["spec_fingerprint"] and resolved.width == said["width"]
    assert resolved.spec.to_dict() == said["spec"] and resolved.spec.fingerprint == resolved.fingerprint
    turns = resolved.pairs[3].turns
    assert turns * 2**64 == (said["pairs"][3]["turns_whole"] << 64) + int(said["pairs"][3]["turns_fraction"], 16)
    cos, sin = resolved.cos_sin(range(4), layout="duplicated")
    table = client.encode("llama-3.1-8b", range(4), form="cos_sin_duplicated")
    assert np.array_equal(cos, table[:, 0]) and np.array_equal(sin, table[:, 1])
    cos, sin = resolved.cos_sin(range(4), layout="repeated")
    assert np.array_equal(cos, table[:, 0, :64].repeat(2, -1)) and np.array_equal(sin, table[:, 1, :64].repeat(2, -1))


def test_resolved_pairs_have_whole_turns_phases_and_axes(client):
    turns, axes, phases = [2.25, 0.5, 0.25, 0.125], [0, 1, 1, 0], [0.25, 0, 0.5, 0]
    fields = {"axes": 2, "axis_rule": "list", "axis_of_pair": axes, "inv_freq": turns, "phase": phases}
    resolved = client.resolve({"kind": "rotary", "head_dim": 8, "pairing": "half_split", "family": "explicit", "frequency_unit": "turns", **fields})
    assert [(pair.turns, pair.axis, pair.phase) for pair in resolved.pairs] == list(zip(turns, axes, phases, strict=True))
    assert resolved.axis.tolist() == axes and resolved.inv_freq.tolist() == [2 * np.pi * each for each in turns]
