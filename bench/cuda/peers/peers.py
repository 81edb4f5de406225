# SPDX-License-Identifier: Apache-2.0
"""peers.py PACKAGE OUT.json [--quick] [--seconds N]: compares Phasor's kernels with other projects' on one GPU.

`./dev gpu-test` makes PACKAGE. Before anything is timed, Phasor's bytes are compared with the CPU's and
every peer's result with Phasor's. Runs are CUDA graphs of at least 20 runs, in turn; rows are medians.
Warm: one set of tensors. Cold: so many sets that none is in the L2 cache when its turn comes.
OUT.json is written after each case. A peer that fails is a row with the reason. After N seconds (240
unless told) no case begins. Exit status: 1 if Phasor failed or returned a wrong byte.
docs/benchmarks.md explains the rows.
"""

import argparse
import ctypes
import dataclasses
import functools
import gc
import importlib.util
import os
import pathlib
import statistics
import sys
import time

import torch

LEAST_RUNS = 20
MOST_SETS = 256
TOLERANCE = 0.06  # bfloat16, tables in float32 or bfloat16
TARGET_SMALL, TARGET_LARGE, LARGE_TOKENS = 1.2, 1.0, 8192
DECODE_TOKENS, LONGEST, MOVED_BY = 256, 131072, 4096
FLOAT32, BFLOAT16 = 1, 3


@dataclasses.dataclass(frozen=True)
class Case:
    tokens: int
    q_heads: int = 32
    k_heads: int = 8
    dim: int = 128
    interleaved: bool = False
    moved: bool = False  # cached keys move by MOVED_BY positions: q holds them, and there is no k

    @property
    def name(self):
        return "peer_move" if self.moved else "peer_rope"

    @property
    def shape(self):
        kind = "interleaved" if self.interleaved else "half-split"
        return f"T={self.tokens} {self.q_heads}q+{self.k_heads}k x{self.dim} {kind}"

    @property
    def elements(self):
        return self.tokens * (self.q_heads + self.k_heads) * self.dim


CASES = [Case(t) for t in (1, 8, 64, 512, 4096, 8192, 32768)]
CASES += [Case(64, 8, 1), Case(8192, 8, 1), Case(4096, interleaved=True)]
CASES += [Case(8192, 64, 8), Case(8192, 32, 32, 64), Case(8192, 16, 8, 256), Case(8192, 128, 1, 64)]
CASES += [Case(t, 8, 0, moved=True) for t in (512, 32768)]
ENCODINGS = [(FLOAT32, *s) for s in ((1, 320), (64, 1280), (1024, 320), (4096, 1536), (131072, 128))]
ENCODINGS += [(BFLOAT16, 1024, 320), (BFLOAT16, 131072, 128)]


class Tensors:
    """A case's tensors, q then k in one buffer, and the tables that peers read."""

    def __init__(self, case, positions, values):
        self.case, self.positions = case, positions
        self.flat = values.clone()
        split = case.tokens * case.q_heads * case.dim
        self.q = self.flat[:split].view(case.tokens, case.q_heads, case.dim)
        self.k = self.flat[split:].view(case.tokens, case.k_heads, case.dim)


def table(dim):
    """[positions, dim]: cosines, then sines, of float64 angles."""
    frequency = 10000.0 ** (-torch.arange(dim // 2, dtype=torch.float64, device="cuda") / (dim // 2))
    angle = torch.arange(LONGEST, dtype=torch.float64, device="cuda")[:, None] * frequency
    return torch.cat((angle.cos(), angle.sin()), -1).float()


# --- subjects: each makes a function that rotates a set of tensors and returns q and k ------------


class Phasor:
    def __init__(self, folder):
        self.library = ctypes.CDLL(str(folder / "libphasor_cuda_shim.so"))
        for name in ("device", "rope_case", "rope", "encode"):
            getattr(self.library, f"phasor_cuda_{name}").restype = ctypes.c_void_p
        self.library.phasor_cuda_device.restype = ctypes.c_char_p
        self.device = self.library.phasor_cuda_device().decode()
        self.cases = {}

    def case(self, tensors):
        case = tensors.case
        if case not in self.cases:
            at = (ctypes.c_int64 * case.tokens)(*tensors.positions.tolist())
            preset = b"rope-interleaved" if case.interleaved else b"rope-half-split"
            sizes = map(ctypes.c_int64, (case.tokens, case.q_heads, case.k_heads, case.dim))
            self.cases[case] = ctypes.c_void_p(self.library.phasor_cuda_rope_case(preset, BFLOAT16, at, *sizes))
        return self.cases[case]

    def rope(self, tensors, _):
        staged = ctypes.c_void_p(self.library.phasor_cuda_rope(self.case(tensors), ctypes.c_void_p(tensors.flat.data_ptr())))

        def run():
            launch(self.library.phasor_cuda_launch, staged)
            return tensors.q, tensors.k

        return run

    def check(self, tensors, before):
        """Ends the process unless the tensors hold what the CPU computes from `before`."""
        host = [t.cpu().contiguous() for t in (before, tensors.flat)]
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in host]
        self.library.phasor_cuda_check_rope(self.case(tensors), *pointers, int(tensors.case.elements < 1 << 24))

    def encode(self, rows, dim, dtype, out):
        sizes = ctypes.c_int64(rows), ctypes.c_int64(dim)
        staged = self.library.phasor_cuda_encode(b"timestep-sin-cos", *sizes, dtype, ctypes.c_void_p(out.data_ptr()))
        staged = ctypes.c_void_p(staged)

        def run():
            launch(self.library.phasor_cuda_launch, staged)
            return out

        return run

    def check_encode(self, rows, dim, dtype, out):
        host = out.cpu()
        sizes = ctypes.c_int64(rows), ctypes.c_int64(dim)
        self.library.phasor_cuda_check_encode(b"timestep-sin-cos", *sizes, dtype, ctypes.c_void_p(host.data_ptr()))


def launch(function, *arguments):
    status = function(*arguments, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    if status != 0:
        raise RuntimeError(f"status {status} of a launch")


def compiled_peer(folder, name):
    library = ctypes.CDLL(str(folder / f"libpeer_{name}.so"))

    def make(tensors, cache):
        case = tensors.case
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (tensors.q, tensors.k, cache, tensors.positions)]
        sizes = [ctypes.c_uint32(n) for n in (case.tokens, case.q_heads, case.k_heads, case.dim)]

        def run():
            launch(library.peer_rope, *pointers, *sizes, int(case.interleaved))
            return tensors.q, tensors.k

        return run

    return make


def liger_peer(folder):
    spec = importlib.util.spec_from_file_location("liger_rope", folder / "liger_rope.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def make(tensors, cache):
        if tensors.case.interleaved:
            return None
        cos, sin = (part[tensors.positions].repeat(1, 2)[None] for part in cache.chunk(2, -1))
        q, k = (t[None].transpose(1, 2) for t in (tensors.q, tensors.k))  # views (batch, heads, tokens, dim)

        def run():
            rotated = module.rope_forward(q, k, cos, sin)
            return [t[0].transpose(0, 1) for t in rotated[:2]]

        return run

    return make


def lmcache_peer():
    """The operator that moves cached keys, where LMCache is installed and accepts this PyTorch."""
    # An older LMCache has another name for it.
    try:
        operators = importlib.import_module("lmcache.cuda_ops")
    except ImportError:
        operators = importlib.import_module("lmcache.c_ops")

    @functools.lru_cache(maxsize=1)
    def arguments_of(case):
        old = torch.arange(case.tokens, device="cuda")
        return old, old + MOVED_BY, table(case.dim).bfloat16()  # it wants a table of the keys' type

    def make(tensors, _):
        old, new, rounded = arguments_of(tensors.case)

        def run():
            operators.rotary_embedding_k_fused(old, new, tensors.q, tensors.case.dim, rounded, True)
            return tensors.q, tensors.k

        return run

    return make


def half_split(x, cos, sin):
    """transformers' apply_rotary_pos_emb."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def interleaved(x, cos, sin):
    """GPT-J's rotate_every_two."""
    return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2) * sin


@functools.lru_cache(maxsize=None)
def torch_rotation(rotate, compiled):
    def both(q, k, cos, sin):
        return rotate(q, cos, sin), rotate(k, cos, sin)

    return compile_function(both) if compiled else both


def compile_function(function):
    return torch.compile(function, dynamic=False, fullgraph=True, mode="max-autotune-no-cudagraphs")


def forget_compiled():
    """torch.compile refuses a function that it has compiled for too many shapes."""
    torch_rotation.cache_clear()
    torch._dynamo.reset()  # pylint: disable=protected-access  # there is no other way
    gc.collect()
    torch.cuda.empty_cache()


def torch_peer(compiled):
    def make(tensors, cache):
        case = tensors.case
        cos, sin = (part[tensors.positions] for part in cache.chunk(2, -1))
        spread = (lambda t: t.repeat_interleave(2, -1)) if case.interleaved else (lambda t: t.repeat(1, 2))
        cos, sin = (spread(t).bfloat16()[:, None] for t in (cos, sin))
        both = torch_rotation(interleaved if case.interleaved else half_split, compiled)
        return lambda: both(tensors.q, tensors.k, cos, sin)

    return make


def peers(folder, report):
    """{name: maker} of the peers that load. Records why the others do not."""
    makers = {
        "FlashInfer": lambda: compiled_peer(folder, "flashinfer"),
        "sglang": lambda: compiled_peer(folder, "sglang"),
        "Liger": lambda: liger_peer(folder),
        "LMCache": lmcache_peer,
        "torch eager": lambda: torch_peer(False),
        "torch.compile": lambda: torch_peer(True),
    }
    found = {}
    for name, load in makers.items():
        try:
            found[name] = load()
        except Exception as error:  # pylint: disable=broad-except  # whatever is wrong with a peer is not ours
            report.skip({"name": "peer", "shape": "all"}, name, f"{type(error).__name__}: {error}")
    for line in (folder / "missing.txt").read_text(encoding="utf-8").splitlines():
        name, _, why = line.partition(": ")
        report.skip({"name": "peer", "shape": "all"}, name, why)
    return found


# --- timing ---------------------------------------------------------------------------------------


def graph_of(runs):
    """One CUDA graph of all runs, repeated to at least LEAST_RUNS; and how many runs that is."""
    repeats = -(-LEAST_RUNS // len(runs))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for run in runs[:2]:
            run()  # compiles
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            for run in runs:
                run()
    return graph, repeats * len(runs)


def medians(graphs, rounds):
    """The seconds of one run in each graph. Each round starts with another graph."""
    names = list(graphs)
    seconds = {name: [] for name in names}
    for turn in range(rounds + 1):
        for i in range(len(names)):
            name = names[(turn + i) % len(names)]
            graph, runs = graphs[name]
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if turn > 0:
                seconds[name].append(begin.elapsed_time(end) / 1e3 / runs)
    return {name: statistics.median(values) for name, values in seconds.items()}


def sets_for(cold, bytes_of_one):
    """How many sets of tensors a graph goes through; None if no number of them is cold."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    wanted = 2 * cache // bytes_of_one + 1
    if not cold:
        return 1
    return wanted if 1 < wanted <= MOST_SETS else None


def agrees(got, want):
    return all(((g.float() - w.float()).abs() <= TOLERANCE * w.float().abs().clamp_min(1)).all().item() for g, w in zip(got, want))


def in_place_baselines(values, sets):
    """What a rotation in place costs at least: reading and writing its bytes, and touching no others."""
    memory = [values.clone() for _ in range(sets)]

    def swap(flat):
        first, second = flat.chunk(2)
        second.copy_(first)
        first.copy_(second)

    return {
        "in-place pass": [functools.partial(t.mul_, -1) for t in memory],
        "two copies of halves": [functools.partial(swap, t) for t in memory],
    }


def bench_rope(report, phasor, found, case, cold, rounds):
    sets = sets_for(cold, case.elements * 2)
    if sets is None:
        return
    generator = torch.Generator("cuda").manual_seed(1)
    values = torch.randn(case.elements, device="cuda", generator=generator).bfloat16()
    positions = positions_of(case, generator)
    cache = table(case.dim)
    truth = Tensors(case, positions, values)
    want = [t.clone() for t in phasor.rope(truth, cache)()]
    torch.cuda.synchronize()
    phasor.check(truth, values)

    row = {"name": case.name, "shape": case.shape, "dtype": "BFLOAT16", "threads": 0}
    large = case.elements * 2 >= 2 * torch.cuda.get_device_properties(0).L2_cache_size
    row["cache"] = "DRAM" if large else "cold" if cold else "warm"
    graphs = {}
    keep = []
    for name, make in ({"Phasor": phasor.rope} | found).items():
        try:
            probe = make(Tensors(case, positions, values), cache)
            if probe is None:
                continue
            if not agrees(probe(), want):
                raise ValueError("returns something else than Phasor")
            tensors = [Tensors(case, positions, values) for _ in range(sets)]
            runs = [make(t, cache) for t in tensors]
            graphs[name] = graph_of(runs)
            keep.append((tensors, runs))
        except Exception as error:  # pylint: disable=broad-except
            if name == "Phasor":
                raise
            report.skip(row, name, f"{type(error).__name__}: {error}")
    baselines = in_place_baselines(values, sets)
    graphs |= {name: graph_of(runs) for name, runs in baselines.items()}
    seconds = medians(graphs, rounds)
    ours = seconds.pop("Phasor")
    best = min((name for name in seconds if name not in baselines), key=seconds.get, default=None)
    target = TARGET_LARGE if case.tokens >= LARGE_TOKENS else TARGET_SMALL if case.tokens >= 64 else None
    for name in seconds:
        report.add(row, ours, name, seconds[name], target if name == best else None)


def positions_of(case, generator):
    """Decoding reads anywhere in the context; prefill reads it in order."""
    if case.moved:
        return torch.full((case.tokens,), MOVED_BY, device="cuda")
    if case.tokens <= DECODE_TOKENS:
        return torch.randint(0, LONGEST, (case.tokens,), device="cuda", generator=generator)
    return torch.arange(case.tokens, device="cuda")


def bench_encode(report, phasor, dtype, rows, dim, rounds):
    """diffusers' get_timestep_embedding with given frequencies."""
    element = torch.float32 if dtype == FLOAT32 else torch.bfloat16
    out = torch.empty(rows, dim, dtype=element, device="cuda")
    ours = phasor.encode(rows, dim, dtype, out)
    want = ours().clone()
    torch.cuda.synchronize()
    phasor.check_encode(rows, dim, dtype, want)
    t = torch.arange(rows, dtype=torch.float32, device="cuda")
    f = (10000.0 ** (-torch.arange(dim // 2, dtype=torch.float64, device="cuda") / (dim // 2))).float()

    def encode(t, f):
        phase = t[:, None] * f
        return torch.cat([phase.sin(), phase.cos()], dim=-1).to(element)

    row = {"name": "peer_encode", "shape": f"{rows}x{dim} timestep-sin-cos", "dtype": "FLOAT32" if dtype == FLOAT32 else "BFLOAT16"}
    row |= {"threads": 0, "cache": "warm"}
    filled = torch.empty_like(out)
    candidates = {"Phasor": lambda: ours, "torch eager": lambda: lambda: encode(t, f)}
    candidates["torch.compile"] = lambda: functools.partial(compile_function(encode), t, f)
    candidates["device memset"] = lambda: filled.zero_
    graphs = {}
    for name, make in candidates.items():
        try:
            graphs[name] = graph_of([make()])
        except Exception as error:  # pylint: disable=broad-except
            if name == "Phasor":
                raise
            report.skip(row, name, f"{type(error).__name__}: {error}")
    seconds = medians(graphs, rounds)
    for name in list(seconds)[1:]:
        report.add(row, seconds["Phasor"], name, seconds[name])


def work(phasor, report, found, quick):
    """All cases, each as its name and a function."""
    rounds = 3 if quick else 50
    movers = {name: make for name, make in found.items() if name == "LMCache"}
    others = {name: make for name, make in found.items() if name != "LMCache"}
    for case in CASES[:3] if quick else CASES:
        for cold in (False, True):
            peers_of = movers if case.moved else others
            arguments = (report, phasor, peers_of, case, cold, rounds)
            yield f"{case.name} {case.shape}", cold, functools.partial(bench_rope, *arguments)
    for case in ENCODINGS[:2] if quick else ENCODINGS:
        yield f"peer_encode {case}", True, functools.partial(bench_encode, report, phasor, *case, rounds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("package", type=pathlib.Path)
    parser.add_argument("out")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=240)
    arguments = parser.parse_args()
    ends = time.monotonic() + arguments.seconds
    folder = arguments.package / "peers"
    sys.path.insert(0, str(folder))
    from harness import Report  # bench/peers/harness.py, which is packaged beside this file

    # Not all kernels of PyTorch at once. Whatever a graph holds has run before.
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    phasor = Phasor(folder)
    report = Report(f"{phasor.device}, torch {torch.__version__}", arguments.quick, "bench_cuda_peers", arguments.out)
    found = peers(folder, report)
    failed = 0
    with torch.inference_mode():
        for name, is_last_of_shape, run in work(phasor, report, found, arguments.quick):
            if time.monotonic() > ends:
                report.skip({"name": name.split()[0], "shape": name}, "all", "no time left")
                continue
            try:
                run()
            except Exception as error:  # pylint: disable=broad-except
                print(f"FAIL  {name}: {type(error).__name__}: {error}", flush=True)
                failed += 1
            if is_last_of_shape:
                forget_compiled()
            report.save()
    report.finish()
    sys.exit(min(failed, 1))


if __name__ == "__main__":
    main()
