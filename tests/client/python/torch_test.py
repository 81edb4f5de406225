# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch, and phasor.torch beside transformers. Skipped without torch."""

import gc
import os
import subprocess
import sys
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here: tests/conformance/run.sh installs it")

import move_test
import truth

import phasor
import phasor.torch
from phasor import _devices

LLAMA = phasor.Spec("llama-3")
TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def tensor(dtype=torch.float32, shape=(7, 3, 128)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_tensors_of_every_type_have_the_bytes_of_numpy(client, dtype):
    x = tensor(dtype)
    y = client.apply_rope(x, positions=torch.arange(7), spec=LLAMA)
    assert type(y) is torch.Tensor and y.dtype == dtype and y.shape == x.shape
    np.testing.assert_allclose(y.double(), truth.rotated(x.double().numpy(), range(7), 500000.0), atol=truth.BOUND[str(dtype)[6:]], rtol=0)
    mine = x.clone()
    version = mine._version
    assert client.apply_rope(mine, positions=range(7), spec=LLAMA, inplace=True) is mine
    assert torch.equal(mine.view(torch.uint8), y.view(torch.uint8)) and mine._version > version
    if dtype != torch.bfloat16:
        assert truth.bytes_of(y) == phasor.apply_rope(x.numpy(), positions=range(7), spec=LLAMA).tobytes()


def test_a_cache_in_a_tensor_moves_where_it_lies(client):
    """Of types that numpy has or has not, seen as bytes."""
    wanted = move_test.filled("bfloat16")
    phasor.move_paged([wanted], **move_test.one_layer("bfloat16"))
    for dtype in (torch.bfloat16, torch.uint8, torch.float8_e4m3fn):
        cache = torch.from_numpy(move_test.filled("bfloat16").view(np.uint8)).view(dtype)
        version = cache._version
        client.move_paged([cache], **move_test.one_layer("bfloat16"))
        assert truth.bytes_of(cache) == wanted.tobytes() and cache._version > version
    with pytest.raises(phasor.InvalidArgument, match=r"pools\[0\].strides: not contiguous"):
        client.move_paged([cache.mT], **move_test.one_layer("bfloat16"))


def test_results_are_tensors_where_an_input_is_one():
    assert phasor.encode("llama-3", torch.arange(3), form="cos", dtype=torch.bfloat16).dtype == torch.bfloat16
    assert type(phasor.encode("llama-3", range(3), form="cos", like=torch.zeros(1))) is torch.Tensor
    assert type(phasor.encode("llama-3", range(3), form="cos")) is np.ndarray
    float8 = phasor.apply_rope(tensor(torch.bfloat16), positions=range(7), spec=LLAMA, out_dtype=torch.float8_e5m2)
    assert float8.dtype == torch.float8_e5m2


@pytest.mark.parametrize("view", [lambda x: x[::2], lambda x: x.transpose(0, 1), lambda x: x[:, 1:2], lambda x: x.expand(7, 7, 128)])
def test_views_are_rotated_where_they_lie(client, view):
    x = view(tensor(shape=(7, 1, 128)) if "expand" in str(view.__code__.co_names) else tensor())
    tokens = x.shape[0]
    wanted = phasor.apply_rope(x.contiguous(), positions=range(tokens), spec=LLAMA)
    assert torch.equal(client.apply_rope(x, positions=range(tokens), spec=LLAMA), wanted)
    if 0 in x.stride():
        with pytest.raises(phasor.InvalidArgument, match="overlap"):
            client.apply_rope_(x, positions=range(tokens), spec=LLAMA)
        return
    client.apply_rope_(x, positions=range(tokens), spec=LLAMA)
    assert torch.equal(x, wanted)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.int16, torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_positions_of_every_type(dtype):
    positions = torch.tensor([0, 3, 6, 9]).to(dtype)
    wanted = phasor.encode("llama-3", [0, 3, 6, 9], form="cos")
    assert np.array_equal(phasor.encode("llama-3", positions, form="cos").numpy(), wanted)
    assert np.array_equal(phasor.encode("llama-3", positions.repeat_interleave(2)[::2], form="cos").numpy(), wanted)


@pytest.mark.parametrize("inference", [False, True])
def test_a_storage_ends_with_its_last_view(inference):
    """Registrations of GPU memory (_devices.py) last as long as this object."""
    with torch.inference_mode(inference):
        x = torch.ones(10, 4)
        view, gone = x[2:5], []
        weakref.finalize(_devices._owner(x), gone.append, True)
        assert _devices._owner(view) is _devices._owner(x)
        del x
        gc.collect()
        assert not gone
        del view
        gc.collect()
        assert gone


def test_what_has_no_memory_here_or_needs_a_gradient_is_refused():
    with pytest.raises(phasor.InvalidArgument, match="requires grad; use phasor.torch"):
        phasor.apply_rope(tensor().requires_grad_(), positions=range(7), spec=LLAMA)
    with pytest.raises(TypeError, match="lies on meta"):
        phasor.apply_rope(tensor().to("meta"), positions=range(7), spec=LLAMA, out=tensor())
    with pytest.raises(phasor.InvalidArgument, match="negated"):
        phasor.apply_rope(torch.view_as_complex(torch.randn(7, 3, 128, 2)).conj().imag, positions=range(7), spec=LLAMA, out=tensor())


def test_memory_shared_with_a_server_is_a_tensor(staged):
    x = staged.empty((7, 3, 128), "bfloat16", like=torch.zeros(1))
    assert x.dtype == torch.bfloat16
    x.copy_(tensor())
    wanted = phasor.apply_rope(x.clone(), positions=range(7), spec=LLAMA)
    staged.apply_rope_(x, positions=range(7), spec=LLAMA)
    assert torch.equal(x, wanted)


# --- phasor.torch ---

SPECS = {
    "plain": phasor.Spec("rope-half-split"),
    "interleaved, partial": phasor.Spec("rope-interleaved", rotary_dim=4),
    "amplitude": phasor.Spec("rope-half-split", attention_factor=1.5),
    "yarn": phasor.Spec("rope-half-split", rope_scaling={"yarn": {"factor": 4.0, "original_max_position_embeddings": 64}}),
    "xpos": phasor.Spec("rope-half-split", xpos={"scale_base": 512.0}),
}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("inverse", [False, True])
def test_gradients_are_right(spec, inverse):
    x = tensor(torch.float64, (5, 2, 8)).requires_grad_()
    positions = torch.tensor([0, 1, 7, 100, 1000])

    def rotate(t):
        return phasor.torch.apply_rope(t, positions, SPECS[spec], inverse=inverse)

    assert torch.autograd.gradcheck(rotate, (x,))
    assert torch.autograd.gradgradcheck(rotate, (x,))


def test_operators_keep_their_contract():
    arguments = (tensor(shape=(2, 3, 5, 8)), torch.arange(5), SPECS["plain"]._json, "htd", False)
    torch.library.opcheck(torch.ops.phasor.apply_rope.default, arguments)
    torch.library.opcheck(torch.ops.phasor.cos_sin.default, (torch.arange(10).reshape(2, 5, 1), LLAMA._json, "cos_sin", 64, torch.bfloat16))


@pytest.mark.filterwarnings("ignore")
def test_compiled_without_a_graph_break():
    rope = phasor.torch.RotaryEmbedding(spec=LLAMA)

    def model(q, k, position_ids):
        cos, sin = rope(q, position_ids)
        return (*phasor.torch.apply_rotary_pos_emb(q, k, cos, sin), phasor.torch.apply_rope(q, position_ids, LLAMA, layout="htd"))

    q, k, ids = tensor(shape=(2, 4, 7, 128)), tensor(shape=(2, 2, 7, 128)), torch.arange(14).reshape(2, 7)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for got, wanted in zip(compiled(q, k, ids), model(q, k, ids), strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64], ids=str)
def test_positions_that_are_no_real_numbers_are_refused(dtype):
    with pytest.raises(TypeError, match="positions: torch"):
        phasor.apply_rope(tensor(shape=(7, 2, 128)), positions=torch.ones(7, dtype=dtype), spec=LLAMA)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", [{"spec": "llama-3"}, {"preset": "llama-3"}, {"spec": {"preset": "llama-3", "rope_theta": 10000.0}}], ids=str)
def test_compiled_with_a_spec_by_name_or_fields(what):
    def model(x):
        return phasor.torch.apply_rope(x, range(7), **what)

    x = tensor(shape=(7, 2, 128))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), model(x))


EXACT = [
    [16777217.0, 0.1, 3.0],  # float32 holds neither
    [0, 16777217.0, 2**53],
    [1, 2, 2**53 + 1],
    range(2**53 + 1, 2**53 + 4),
    (1, 2, 3),
    np.array([16777217.0, 0.1, 3.0]),
    np.array([0, 1, 255], np.uint8),
    np.arange(-2, 1)[::-1],
]


@pytest.mark.parametrize("positions", EXACT, ids=repr)
def test_positions_that_are_no_tensors_are_exact(positions):
    x = tensor(torch.float64, (3, 2, 128))
    wanted = phasor.apply_rope(x, positions=positions, spec=LLAMA)
    assert torch.equal(phasor.torch.apply_rope(x, positions, LLAMA), wanted)
    assert torch.equal(phasor.torch.apply_rope(x[:1], positions[0], LLAMA), wanted[:1])


def test_positions_that_cannot_be_exact_are_refused():
    x = tensor(shape=(2, 2, 128))
    for bad in ([2**53 + 1, 0.5], np.ma.array([1, 2], mask=[0, 1]), [2**63]):
        with pytest.raises(phasor.InvalidArgument, match="^positions: "):
            phasor.torch.apply_rope(x, bad, LLAMA)


def test_gradients_have_the_positions_of_their_call():
    """Also when the array has others by then, and when it cannot be written."""
    x, positions = tensor(torch.float64, (3, 2, 128)).requires_grad_(), np.array([1, 2, 3])
    y = phasor.torch.apply_rope(x, positions, LLAMA)
    positions[:] = 0
    positions.flags.writeable = False
    y.sum().backward()
    wanted = phasor.torch.apply_rope(torch.ones(3, 2, 128, dtype=torch.float64), [1, 2, 3], LLAMA, inverse=True)
    assert torch.equal(x.grad, wanted)
    assert torch.equal(phasor.torch.apply_rope(x.detach(), positions, LLAMA), x)


@pytest.mark.filterwarnings("ignore")
def test_compiled_positions_are_exact_when_they_change():
    """torch.compile keeps the numbers of the first list as constants, and traces those of later ones."""
    torch.compiler.reset()
    x = tensor(torch.float64, (3, 2, 128))
    compiled = torch.compile(lambda positions: phasor.torch.apply_rope(x, positions, LLAMA), fullgraph=True, backend="aot_eager")
    integers = ([1, 2, 3], [4, 5, 6], [7, 8, 2**53 + 1], range(2**53 + 1, 2**53 + 4), np.array([3, 2, 1]))
    for positions in (*integers, [0.5, 1.0, 2.0], [16777217.0, 0.1, 3.0], [16777219.0, 0.2, 4.0]):
        assert torch.equal(compiled(positions), phasor.apply_rope(x, positions=positions, spec=LLAMA)), positions
    with pytest.raises(Exception, match="an integer beside real numbers is above"):
        compiled([0.5, 2**53 + 1, 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_rotary_module_of_transformers(dtype):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama", reason="transformers is not installed here")
    config = llama.LlamaConfig(
        hidden_size=256, num_attention_heads=2, head_dim=128, max_position_embeddings=8192, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}
    )
    theirs, ours = llama.LlamaRotaryEmbedding(config), phasor.torch.RotaryEmbedding(config)
    x, ids = torch.zeros(2, 9, 256, dtype=dtype), torch.arange(18).reshape(2, 9)
    for mine, other in zip(ours(x, ids), theirs(x, ids), strict=True):
        assert mine.shape == other.shape and mine.dtype == other.dtype
        torch.testing.assert_close(mine, other, atol=2e-6 if dtype == torch.float32 else 8e-3, rtol=0)
    far = torch.tensor([[1_000_000]])
    exact = truth.sin_cos([1_000_000], 64, 500000.0)[1]
    assert np.abs(ours(torch.zeros(1, 1), far)[0][0, 0, :64].double().numpy() - exact).max() < 1e-6
    assert np.abs(theirs(torch.zeros(1, 1), far)[0][0, 0, :64].double().numpy() - exact).max() > 1e-3
    q, k = tensor(dtype, (2, 2, 9, 128)), tensor(dtype, (2, 1, 9, 128))
    cos, sin = theirs(x, ids)
    for mine, other in zip(phasor.torch.apply_rotary_pos_emb(q, k, cos, sin), llama.apply_rotary_pos_emb(q, k, cos, sin), strict=True):
        assert torch.equal(mine, other)


def test_scaled_rules_of_transformers():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama", reason="transformers is not installed here")
    rules = [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 2048},
    ]
    for rule in rules:
        config = llama.LlamaConfig(
            hidden_size=256, num_attention_heads=2, max_position_embeddings=8192, rope_parameters={"rope_theta": 10000.0, **rule}
        )
        x, ids = torch.zeros(1, 50, 256), torch.arange(50)[None]
        for mine, other in zip(phasor.torch.RotaryEmbedding(config)(x, ids), llama.LlamaRotaryEmbedding(config)(x, ids), strict=True):
            torch.testing.assert_close(mine, other, atol=1e-5, rtol=0)


def test_tables_have_the_layout_that_is_asked_for():
    x, ids = torch.zeros(1, 5, 8), torch.arange(5)[None] + 1000
    modules = {layout: phasor.torch.RotaryEmbedding(spec={"preset": "llama-3", "head_dim": 8}, layout=layout) for layout in phasor.torch._LAYOUTS}
    cos, sin = modules["half"](x, ids)
    assert cos.shape == (1, 5, 4)
    for layout, columns in (("duplicated", [0, 1, 2, 3, 0, 1, 2, 3]), ("repeated", [0, 0, 1, 1, 2, 2, 3, 3])):
        for mine, half in zip(modules[layout](x, ids), (cos, sin), strict=True):
            assert torch.equal(mine, half[..., columns])
    table = modules["complex"](x.bfloat16(), ids)
    assert table.dtype == torch.complex64 and torch.equal(table.real, cos) and torch.equal(table.imag, sin)
    with pytest.raises(ValueError, match="layout: 'both'; must be one of"):
        phasor.torch.RotaryEmbedding(spec="llama-3", layout="both")


# Each brings a copy of libraries that the package has too: gRPC, Abseil, protobuf, OpenMP.
ORDERS = ["phasor grpc torch", "torch phasor grpc", "grpc torch phasor", "grpc phasor", "phasor grpc"]


@pytest.mark.parametrize("order", ORDERS)
def test_grpcio_and_torch_are_in_the_same_process(phasor_server, order):
    pytest.importorskip("grpc", reason="grpcio is not installed here")
    code = f"""
import {', '.join(order.split())}
import numpy
health = b"\\x0a\\x00"
with grpc.insecure_channel({phasor_server.target!r}) as channel, phasor.Client({phasor_server.target!r}) as client:
    for _ in range(3):
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(health, timeout=60) == b"\\x08\\x01"
        assert client.apply_rope(numpy.ones((1, 1, 8), "f"), positions=3, spec="rope-half-split").shape == (1, 1, 8)
if "torch" in {order!r}:
    assert float((torch.ones(8, 8) @ torch.ones(8, 8)).sum()) == 512
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout == "fine\n", done.stderr


def test_importing_the_package_does_not_import_torch():
    assert "torch" in sys.modules
    code = "import sys, phasor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
