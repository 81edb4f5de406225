# SPDX-License-Identifier: Apache-2.0
"""launch_table.py [--fix] CXX: how launches of the plain rotation fill a device, and how near to a copy that should bring it;
and what a row of Encode executes.

Compiles kernels/cuda/grid.h into a program that prints the blocks of each launch, and takes what a thread executes from
machine_code.json. Compares the tables of docs/cuda.md with what it finds (--fix writes them), the predictions with the ratios
that an H100 reached, and the targets with both.

The rotation: 32 query and 8 key heads of 128 lanes, BFLOAT16, half split, in place.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE, COUNTS = ROOT / "docs/cuda.md", pathlib.Path(__file__).with_name("machine_code.json")
MEASURED = ROOT / "bench/results/2026-11-23-h100/cuda.json"
TOKENS, PROCESSORS = (1, 8, 64, 512, 4096, 8192, 32768), (20, 82, 132, 148)
FULL = 4096  # tokens from which on the memory should be what bounds a rotation
KINDS = ("BF16", "BF16 to FLOAT8", "F16", "F32")

# What MakeRotaryItem (kernels/cuda/items.cc) asks of the grid: 8 units of 16 lanes to a head are never split, and a block has
# angles for 256 of them.
UNITS, PROGRAM = 40 * 8, """
#include <cstdio>
#include "kernels/cuda/grid.h"
using namespace phasor::cuda;
int main() {
  long tokens; int processors;
  while (std::scanf("%ld %d", &tokens, &processors) == 2) {
    const ItemGrid g = MakeItemGrid({.rows = tokens, .units = 320, .processors = processors, .most_rows = 256 / 8, .together = 8});
    std::printf("%ld %d %d %d\\n", static_cast<long>(g.blocks), g.block_units, kThreads, kBlocksPerProcessor);
  }
}
"""
READ_BYTES = 32  # of a unit; it writes as many

# Architecture whose counts are taken, multiprocessors, GHz, and TB/s as the vendor gives them. Code for 86 is like that for 80,
# and code for 89 and 100 like that for 90.
CARDS = {
    "RTX 3050": (80, 20, 1.78, 0.224),
    "RTX 3090": (80, 82, 1.70, 0.936),
    "A100 80 GB": (80, 108, 1.41, 2.04),
    "RTX 4090": (90, 128, 2.52, 1.01),
    "H100 SXM": (90, 132, 1.76, 3.35),
    "B200": (90, 148, 1.85, 8.0),
    "RTX 5090": (120, 170, 2.41, 1.79),
}
# The H100's copies take 1.3 us and the time of their bytes at 0.9 of that speed; other cards are taken to do the same.
LAUNCH_US, ATTAINED, LATENCY_US = 1.3, 0.9, 0.8
# Instructions of 32 threads that a multiprocessor begins in a cycle, in all and by pipe.
# Of sm_80 the A100 begins two of fma, and the other cards four; two are taken for all.
ISSUE, ALU, FMA = 4, 2, {80: 2}


def geometry(compiler, wanted):
    """The grid of each (tokens, multiprocessors): blocks, units of a block, threads of a block, resident blocks."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "grid.cc"), pathlib.Path(folder, "grid")
        source.write_text(PROGRAM, encoding="utf-8")
        subprocess.run([compiler, "-std=c++20", f"-I{ROOT}", source, "-o", program], check=True)
        given = "".join(f"{tokens} {processors}\n" for tokens, processors in wanted)
        lines = subprocess.run([program], input=given, capture_output=True, text=True, check=True).stdout.splitlines()
    return {key: tuple(map(int, line.split())) for key, line in zip(wanted, lines)}


def in_flight(grid, processors):
    """Bytes that the resident blocks have asked for before their barriers."""
    blocks, units, _, resident = grid
    return min(blocks, resident * processors) * units * READ_BYTES


def predicted(card, tokens, grid, counts):
    """The ratio to a copy, for the most and for the fewest instructions that a thread may execute before its barrier."""
    architecture, processors, ghz, tbps = CARDS[card]
    blocks, units, threads, _ = grid
    code = counts[str(architecture)]["BF16"]
    moved_us = tokens * UNITS * 2 * READ_BYTES / (tbps * ATTAINED * 1e6)
    starved = max(1.0, LATENCY_US * tbps * 1e6 / 2 / in_flight(grid, processors)) if tokens >= FULL else 1.0
    unit = max(code["unit"] / ISSUE, code["pipes"]["alu"] / ALU, code["pipes"]["fma"] / FMA.get(architecture, 4))
    ratios = []
    for before in (code["before_most"], code["before"]):
        first = threads / 32 * before / ISSUE  # cycles until the first block has asked for its bytes
        block = threads / 32 * (before / ISSUE + unit * units / threads)
        executed_us = -(-blocks // processors) * block / ghz / 1e3
        copy_us = LAUNCH_US + moved_us
        ratios.append(copy_us / (LAUNCH_US + first / ghz / 1e3 + max(moved_us * starved, executed_us)))
    return ratios


def measured():
    """Tokens -> the ratio that the H100 reached outside its cache, where it was measured."""
    rows = json.loads(MEASURED.read_text(encoding="utf-8"))
    found = {}
    for row in rows:
        shape = re.fullmatch(r"T=(\d+) 32q\+8k x128 rope-half-split", row["shape"])
        if shape and row["name"] == "rope_inplace" and row["dtype"] == "BFLOAT16" and row["cache"] in ("cold", "DRAM"):
            found[int(shape[1])] = row["ratio"]
    return found


def span(low, high):
    return f"{high:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"


def table(head, rows):
    return "".join("| " + " | ".join(map(str, row)) + " |\n" for row in [head, ["---"] * len(head), *rows])


def tables(grids, counts):
    """The tables of the page, by their names."""
    def code(kind):
        c = counts["90"][kind]
        pipes = ", ".join(f"{n} {pipe}" for pipe, n in c["pipes"].items() if pipe in ("fma", "alu", "memory"))
        return [kind, c["registers"], c["loads"], f"{c['before']} to {c['before_most']}", c["unit"], pipes]

    def launch(tokens, processors):
        blocks, _, _, resident = grid = grids[tokens, processors]
        waves, busy = blocks / (resident * processors), min(1, blocks / processors)
        return f"{blocks}, {waves:{'.0f' if waves >= 10 else '.2g'}}, {busy:.0%}, {in_flight(grid, processors) / 1e6:.2g} MB"

    def ratios(card):
        processors, needed = CARDS[card][1], LATENCY_US * CARDS[card][3] / 2
        cells = [span(*predicted(card, tokens, grids[tokens, processors], counts)) for tokens in TOKENS]
        return [f"{card}, {processors}", f"{in_flight(grids[FULL, processors], processors) / 1e6 / needed:.0f} times", *cells]

    def encoding(architecture, kind):
        c = counts[architecture]["encoding in " + kind]
        pipes = ", ".join(f"{n} {pipe}" for pipe, n in c["pipes"].items() if pipe not in ("control", "uniform"))
        return [kind, f"sm_{architecture}", c["registers"], c["row"], pipes, f"{c['row'] / ISSUE:.0f}", f"{c['pipes']['alu'] / ALU:.0f}"]

    reached = measured()
    return {
        "encode": table(
            ["32 bytes of", "code for", "registers", "instructions", "of these, by pipe", "cycles to begin them", "of alu alone"],
            (encoding(a, kind) for kind in ("F32", "BF16") for a in ("80", "90", "120")),
        ),
        "code": table(["rotation in", "registers", "loads", "before the barrier", "a unit", "of these, by pipe"], map(code, KINDS)),
        "launches": table(["tokens", *(f"{p} multiprocessors" for p in PROCESSORS)], ([t, *(launch(t, p) for p in PROCESSORS)] for t in TOKENS)),
        "ratios": table(
            ["card, multiprocessors", "in flight", *TOKENS],
            [*map(ratios, CARDS), ["**H100, measured**", "", *(f"**{reached[t]:.2f}**" if t in reached else "" for t in TOKENS)]],
        ),
    }


def problems_of(grids, counts):
    found = []
    for card, (_, processors, _, tbps) in CARDS.items():
        for tokens in (t for t in TOKENS if t >= FULL):
            grid = grids[tokens, processors]
            if grid[0] < 2 * processors * grid[3]:
                found.append(f"{card}, {tokens} tokens: {grid[0]} blocks are fewer than two waves")
            if in_flight(grid, processors) < LATENCY_US * tbps * 1e6 / 2:
                found.append(f"{card}, {tokens} tokens: too few bytes in flight")
            if predicted(card, tokens, grid, counts)[1] < 0.9:
                found.append(f"{card}, {tokens} tokens: less than 0.9 of a copy is predicted")
    carried = re.search(r'ARG CUDA_ARCHITECTURES="([\d;]+)"', (ROOT / "Dockerfile").read_text(encoding="utf-8"))[1]
    if carried != "75;80;86;89;90;100;120":  # what cuda_machine_code_of_releases checks
        found.append(f"images carry code for {carried}")
    for tokens, ratio in measured().items():
        low, high = predicted("H100 SXM", tokens, grids[tokens, 132], counts)
        if 1024 <= tokens <= max(TOKENS) and not low - 0.05 <= ratio <= high + 0.05:
            found.append(f"{tokens} tokens: {span(low, high)} is predicted, the H100 reached {ratio:.2f}")
    return found


def main():
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    processors = {*PROCESSORS, *(card[1] for card in CARDS.values())}
    grids = geometry(sys.argv[-1], sorted({(t, p) for t in {*TOKENS, *measured()} for p in processors}))
    page = text = PAGE.read_text(encoding="utf-8")
    for name, rows in tables(grids, counts).items():
        mark = re.compile(rf"(<!-- launch_table: {name} -->\n).*?(<!-- launch_table: end -->)", re.DOTALL)
        text, times = mark.subn(lambda m, rows=rows: m[1] + rows + m[2], text)
        if times != 1:
            sys.exit(f"docs/cuda.md has {times} tables '{name}'")
    if "--fix" in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
        page = text
    problems = problems_of(grids, counts) + ["docs/cuda.md: a table differs; run launch_table.py --fix c++"] * (page != text)
    print("\n".join(problems) or f"{len(grids)} launches, {len(CARDS)} cards: as docs/cuda.md says")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
