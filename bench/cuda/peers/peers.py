# SPDX-License-Identifier: Apache-2.0
"""peers.py PACKAGE OUT.json [--quick]: compares Phasor's kernels with other projects' on one GPU, on the same memory.

`./dev gpu-test` makes PACKAGE. Before anything is timed, Phasor's bytes are compared with the CPU's and
every peer's result with Phasor's. Runs are CUDA graphs of at least 20 runs, in turn; rows are medians.
Warm: one set of tensors. Cold: so many sets that none is in the L2 cache when its turn comes.
docs/performance.md explains the rows.
"""

import ctypes
import dataclasses
import importlib.util
import pathlib
import statistics
import sys

import torch

LEAST_RUNS = 20
MOST_SETS = 256
TOLERANCE = 0.06  # bfloat16, tables in float32 or bfloat16
TARGET_SMALL, TARGET_LARGE, LARGE_TOKENS = 1.2, 1.0, 8192
DECODE_TOKENS, LONGEST = 256, 131072
FLOAT32, BFLOAT16 = 1, 3


@dataclasses.dataclass(frozen=True)
class Case:
    tokens: int
    q_heads: int = 32
    k_heads: int = 8
    dim: int = 128
    interleaved: bool = False

    @property
    def shape(self):
        kind = "interleaved" if self.interleaved else "half-split"
        return f"T={self.tokens} {self.q_heads}q+{self.k_heads}k x{self.dim} {kind}"

    @property
    def elements(self):
        return self.tokens * (self.q_heads + self.k_heads) * self.dim


CASES = [Case(t) for t in (1, 8, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 32768)]
CASES += [Case(t, 8, 1) for t in (64, 1024, 8192)] + [Case(t, interleaved=True) for t in (256, 4096, 32768)]
CASES += [Case(8192, 64, 8), Case(8192, 32, 32, 64), Case(8192, 16, 8, 256), Case(8192, 128, 1, 64)]


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


# --- subjects: each makes a function that rotates a set of tensors and returns q and k
# ---------------


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


def half_split(x, cos, sin):
    """transformers' apply_rotary_pos_emb."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def interleaved(x, cos, sin):
    """GPT-J's rotate_every_two."""
    return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2) * sin


def torch_peer(compiled):
    def make(tensors, cache):
        case = tensors.case
        cos, sin = (part[tensors.positions] for part in cache.chunk(2, -1))
        spread = (lambda t: t.repeat_interleave(2, -1)) if case.interleaved else (lambda t: t.repeat(1, 2))
        cos, sin = (spread(t).bfloat16()[:, None] for t in (cos, sin))
        rotate = interleaved if case.interleaved else half_split

        def both(q, k, cos, sin):
            return rotate(q, cos, sin), rotate(k, cos, sin)

        if compiled:
            both = torch.compile(both, dynamic=False, fullgraph=True, mode="max-autotune-no-cudagraphs")
        return lambda: both(tensors.q, tensors.k, cos, sin)

    return make


def peers(folder):
    """{name: maker} of the peers that load. Prints why the others do not."""
    makers = {
        "FlashInfer": lambda: compiled_peer(folder, "flashinfer"),
        "sglang": lambda: compiled_peer(folder, "sglang"),
        "Liger": lambda: liger_peer(folder),
        "torch eager": lambda: torch_peer(False),
        "torch.compile": lambda: torch_peer(True),
    }
    found = {}
    for name, load in makers.items():
        try:
            found[name] = load()
        except Exception as error:  # pylint: disable=broad-except  # whatever is wrong with a peer is not ours
            print(f"SKIP  {name}: {type(error).__name__}: {error}")
    for line in (folder / "missing.txt").read_text(encoding="utf-8").splitlines():
        print(f"SKIP  {line}")
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


def bench_rope(report, phasor, found, case, cold, rounds):
    sets = sets_for(cold, case.elements * 2)
    if sets is None:
        return
    generator = torch.Generator("cuda").manual_seed(1)
    values = torch.randn(case.elements, device="cuda", generator=generator).bfloat16()
    decode = torch.randint(0, LONGEST, (case.tokens,), device="cuda", generator=generator)
    positions = decode if case.tokens <= DECODE_TOKENS else torch.arange(case.tokens, device="cuda")
    cache = table(case.dim)
    truth = Tensors(case, positions, values)
    want = [t.clone() for t in phasor.rope(truth, cache)()]
    torch.cuda.synchronize()
    phasor.check(truth, values)

    makers = {"Phasor": phasor.rope} | found
    graphs = {}
    keep = []
    for name, make in makers.items():
        try:
            probe = make(Tensors(case, positions, values), cache)
            if probe is None:
                continue
            if not agrees(probe(), want):
                print(f"SKIP  {name} {case.shape}: returns something else than Phasor")
                continue
            tensors = [Tensors(case, positions, values) for _ in range(sets)]
            runs = [make(t, cache) for t in tensors]
            graphs[name] = graph_of(runs)
            keep.append((tensors, runs))
        except Exception as error:  # pylint: disable=broad-except
            if name == "Phasor":
                raise
            print(f"SKIP  {name} {case.shape}: {type(error).__name__}: {str(error)[:200]}")
    pairs = [(torch.empty_like(values), values.clone()) for _ in range(sets)]
    graphs["device copy"] = graph_of([lambda p=p: p[0].copy_(p[1]) for p in pairs])
    seconds = medians(graphs, rounds)
    ours = seconds.pop("Phasor")
    others = [name for name in seconds if name != "device copy"]
    best = min(others, key=seconds.get, default=None)
    row = {"name": "peer_rope", "shape": case.shape, "dtype": "BFLOAT16", "threads": 0}
    large = case.elements * 2 >= 2 * torch.cuda.get_device_properties(0).L2_cache_size
    row["cache"] = "DRAM" if large else "cold" if cold else "warm"
    target = TARGET_LARGE if case.tokens >= LARGE_TOKENS else TARGET_SMALL if case.tokens >= 64 else None
    for name in seconds:
        report.add(row, ours, name, seconds[name], target if name == best else None)


def bench_encode(report, phasor, rows, dim, dtype, rounds):
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

    compiled = torch.compile(encode, dynamic=False, fullgraph=True, mode="max-autotune-no-cudagraphs")
    candidates = {"Phasor": ours, "torch eager": lambda: encode(t, f), "torch.compile": lambda: compiled(t, f)}
    candidates["device memset"] = lambda: torch.empty_like(out).zero_()
    seconds = medians({name: graph_of([run]) for name, run in candidates.items()}, rounds)
    row = {"name": "peer_encode", "shape": f"{rows}x{dim} timestep-sin-cos", "dtype": "FLOAT32" if dtype == FLOAT32 else "BFLOAT16"}
    for name in list(seconds)[1:]:
        report.add(row | {"threads": 0, "cache": "warm"}, seconds["Phasor"], name, seconds[name])


def main():
    package, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    quick = "--quick" in sys.argv
    folder = package / "peers"
    sys.path.insert(0, str(folder))
    from harness import Report  # bench/peers/harness.py, which is packaged beside this file

    phasor = Phasor(folder)
    report = Report(f"{phasor.device}, torch {torch.__version__}", quick)
    found = peers(folder)
    rounds = 3 if quick else 50
    with torch.inference_mode():
        for case in CASES[:3] if quick else CASES:
            for cold in (False, True):
                bench_rope(report, phasor, found, case, cold, rounds)
        for dtype in (FLOAT32, BFLOAT16):
            for rows, dim in ((1, 320), (64, 1280), (1024, 320), (4096, 1536), (131072, 128)):
                bench_encode(report, phasor, rows, dim, dtype, rounds)
    report.finish(out)


if __name__ == "__main__":
    main()
