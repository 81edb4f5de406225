# SPDX-License-Identifier: Apache-2.0
"""machine_code.py [--update] KEPT OUT_DIR ARCHITECTURES NVCC FLAG...: checks the machine code of the GPU kernels.

Reads the machine code that the build has kept in the folder KEPT (cmake/nvcc.sh), and compiles kernels/cuda/launch.cu as the
build does for architectures that are not there. No kernel may spill registers, use local memory or call a function. The
kernels that are used most must leave room for enough blocks on a multiprocessor, move 16 bytes at once, have all loads of a
thread in flight together, and stay below a number of instructions. What a thread of a plain rotation or encoding executes is
compared with machine_code.json, for the architectures there; --update writes it. Exit status 77: skipped, with the reason
printed.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
SKIP = 77
KERNEL = re.compile(r"6KernelI(\w+?)EEvNS1_9Arguments")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
LABEL = re.compile(r"^(\.L_x_\d+):")
LOAD, STORE = re.compile(r"LDG?\.E\.(ENL2\.)?(128|256)"), re.compile(r"STG?\.E\.(ENL2\.)?(128|256)")
# Kernels for one plain item of wide units, by the template arguments of their bodies. A thread of a rotation has two units;
# it reads each in two loads, and both before it waits for its block. `writes`: 16 bytes at once, unless it narrows to FLOAT8.
# The code is there twice: for an item among the arguments, and for one in memory. `instructions` counts both, on
# architectures that have the conversions: `since`. `products`: multiplications that rotate a unit. `unit`: the most
# instructions of a unit that is half split. `row`: the most instructions for the `pairs` that a thread of Encode has in a row,
# which are 32 bytes, at positions in a range.
BLOCKS_PER_PROCESSOR, THREADS, REGISTERS = 4, 256, 65536
PLAIN_KERNELS = {
    r"RotaryBodyINS_6scalar\d(F32|F64)ELb1ELb0ELb1E": {"blocks": BLOCKS_PER_PROCESSOR, "loads": 4, "writes": True, "instructions": 2950, "products": 8, "unit": 60, "since": 75},
    r"RotaryBodyINS_6scalar\d(F16|BF16)ELb1ELb0ELb1E": {"blocks": BLOCKS_PER_PROCESSOR, "loads": 4, "writes": True, "instructions": 2800, "products": 32, "unit": 110, "since": 80},
    r"RotaryBodyINS_6scalar\d(F16|BF16)ELb1ELb1ELb1E": {"blocks": BLOCKS_PER_PROCESSOR, "loads": 4, "writes": False, "instructions": 2700, "products": 32, "unit": 150, "since": 89},
    r"RotateKeysBodyILNS_7KeyCodeE0E": {"blocks": BLOCKS_PER_PROCESSOR, "loads": 4, "writes": True, "instructions": 3800, "products": 16, "unit": 60, "since": 75},
    r"RotateKeysBodyILNS_7KeyCodeE[12]E": {"blocks": BLOCKS_PER_PROCESSOR, "loads": 4, "writes": True, "instructions": 4300, "products": 32, "unit": 110, "since": 80},
    r"RotateKeysBodyILNS_7KeyCodeE[34]E": {"blocks": 2, "loads": 4, "writes": True, "instructions": 5600, "products": 64, "unit": 210, "since": 89},
    r"EncodeBodyINS_6scalar\dF32ELb1E": {"blocks": 4, "loads": 0, "writes": True, "instructions": 7000, "pairs": 4, "row": 145, "since": 80},
    r"EncodeBodyINS_6scalar\d(F16|BF16)ELb1E": {"blocks": 3, "loads": 0, "writes": True, "instructions": 8800, "pairs": 8, "row": 280, "since": 80},
}
# Kernels for any rotation, those to FLOAT8 aside. With more registers two blocks fit instead of four, which took 1.37 times as long.
GENERAL_KERNEL, GENERAL_KERNELS = re.compile(r"RotaryBodyINS_6scalar\dB?F\d\dELb[01]ELb0ELb0E"), 8
PAIR_PRODUCTS = 17  # multiplications of floats for a sine and a cosine
# Which part of a multiprocessor executes an instruction; the first that matches. `fma` also multiplies integers, and `alu`
# also selects, compares and converts floats.
PIPES = (
    ("memory", r"(LD|ST)[GS]?(\.|$)|LDC|LDGSTS|RED|ATOM|MEMBAR"),
    ("f64", r"D(ADD|MUL|FMA|SETP|MNMX)"),
    ("special", r"MUFU|F2F\b|F2I|I2F\b|S2R\b"),
    ("fma", r"F(ADD|MUL|FMA)|H(ADD|MUL|FMA)2|IMAD|IDP"),
    ("control", r"BRA|BRX|BAR|EXIT|BSSY|BSYNC|NOP|CALL|RET|WARPSYNC|ACQBULK|DEPBAR|PREEXIT|YIELD"),
    ("uniform", r"U[A-Z]|R2UR|S2UR"),
    ("alu", r""),
)
# There the compiler puts four NOPs before each operation in float64, which few units compute.
SLOW_UNITS = {("F64", "120"): 64}
LIMITS = pathlib.Path(__file__).with_suffix(".json")
ROOM = 1.05  # of a limit, over the count that is written down
# Kernels that move or compare keys through shared memory, one for each code, and those that rotate keys with scales. So many
# blocks must fit on a multiprocessor, by registers and by shared memory, of which a block takes 1 KiB more than it uses: on
# multiprocessors with 64 and 100 KiB, and on larger ones. sm_100 has room for four, whose registers are too few for compilers.
# A thread that rotates keys with scales has 32 lanes, and before sm_89 no instruction converts them to FLOAT8.
MOVE_KERNEL, MOVE_KERNELS = re.compile(r"(Move|Compare|RotateScaled)KeysBodyILNS_7KeyCodeE\d+E"), 26
MOVE_BLOCKS = {"Move": {64: 2, 100: 3}, "Compare": {64: 1, 100: 2}, "RotateScaled": {64: 1, 100: 2, 164: 2, 228: 3}}
MOVES_16 = {"Move": 2, "Compare": 1, "RotateScaled": 0}  # must load 16 bytes at once; must store them, too
# From there on a kernel may start while the one before it ends. Arguments and arenas, which it may read before it waits, are
# read by their generic addresses, tensors by global ones. In some kernels a way on which nothing waits exists, and is never
# taken: those with steps, which wait in the second, and the stores of plain rotations, which wait before or after angles.
WAITS_SINCE = 90
WAITS_IN_STEPS, WAITS_TO_LOAD = re.compile("(Move|Compare)KeysBody"), re.compile("RotaryBody.*ELb1EEE$")
SHARED_KIB = {75: 64, 80: 164, 86: 100, 89: 100, 90: 228, 100: 228, 120: 100}


def main():
    update = sys.argv[1] == "--update"
    kept, folder, architectures, nvcc, *flags = sys.argv[2 if update else 1 :]
    disassembler = find_disassembler(nvcc)
    out = pathlib.Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    known = json.loads(LIMITS.read_text(encoding="utf-8"))
    problems = []
    for architecture in architectures.split(","):
        counts = {}
        code = kept_code(pathlib.Path(kept), architecture) or compiled(out, architecture, nvcc, flags)
        problems += [f"sm_{architecture}: {p}" for p in check(code, architecture, disassembler, counts)]
        if update and counts:
            known[architecture] = counts
        problems += [f"sm_{architecture}: {p}" for p in above(counts, known.get(architecture))]
    if update:
        write(known)
    for problem in problems:
        print(f"FAIL: {problem}")
    if not problems and disassembler is None:
        print("SKIP: no nvdisasm beside nvcc, on the path or in build/.venv: spills were looked for, instructions were not")
        return SKIP
    return 1 if problems else 0


def write(counts):
    rows = [f'"{a}": {{\n' + ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in sorted(counts[a].items())) + "\n}" for a in sorted(counts, key=int)]
    LIMITS.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def find_disassembler(nvcc):
    """nvdisasm of the toolkit, or the one that ./dev installs from PyPI."""
    beside = pathlib.Path(nvcc).resolve().parent / "nvdisasm"
    found = [str(beside)] if beside.exists() else []
    found += filter(None, [shutil.which("nvdisasm")])
    found += map(str, sorted((ROOT / "build/.venv").glob("lib/python*/site-packages/nvidia/*/bin/nvdisasm")))
    return next((f for f in found if os.access(f, os.X_OK)), None)


def kept_code(kept, architecture):
    """The machine code that the build has made for an architecture and what ptxas said of it, or None."""
    cubin = next(kept.glob(f"*_{architecture}.cubin"), None)
    if cubin is None:
        return None
    said = re.split(r"(?=ptxas info\s+: Compiling entry function )", (kept / "ptxas.log").read_text(encoding="utf-8"))
    return cubin, "".join(part for part in said if f"for 'sm_{architecture}'" in part)


def compiled(out, architecture, nvcc, flags):
    """The machine code for an architecture and what ptxas said of it; no path where it does not compile."""
    cubin = out / f"sm_{architecture}.cubin"
    code = f"arch=compute_{architecture},code=sm_{architecture}"
    command = [nvcc, *flags, "-gencode", code, "-Xptxas", "-v", "-cubin", "-o", cubin, ROOT / "kernels/cuda/launch.cu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return (cubin, done.stderr) if done.returncode == 0 else (None, done.stdout + done.stderr)


def check(code, architecture, disassembler, counts):
    """What is wrong with the code for an architecture. `counts`: gets those of the plain rotations."""
    cubin, ptxas = code
    if cubin is None:
        return ["does not compile: " + ptxas[-800:]]
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", ptxas)
    problems = [] if spills else ["ptxas said nothing of registers"]
    problems += [f"a kernel has a stack frame or spills: {s}" for s in spills if s != ("0", "0", "0")]
    names = re.findall(r"Compiling entry function '([^']*)'", ptxas)
    used = re.findall(r"Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?", ptxas)
    registers = [int(r) for r, _ in used]
    said = f"sm_{architecture}: {len(spills)} kernels, {min(registers)} to {max(registers)} registers, no spills"
    moves = [(name, int(r), int(s or 0)) for name, (r, s) in zip(names, used) if MOVE_KERNEL.search(name)]
    if len(moves) != MOVE_KERNELS:
        problems.append(f"{len(moves)} kernels that move keys, not {MOVE_KERNELS}")
    for name, r, shared in moves:
        found = MOVE_KERNEL.search(name)
        problems += [f"{found[0]}: {p}" for p in not_resident(r, shared, found[1], int(architecture))]
    if moves:
        said += f"; of keys at most {max(r for _, r, _ in moves)} registers, {max(s for _, _, s in moves)} bytes shared"
    if disassembler is None:
        print(said, flush=True)
        return problems
    text = subprocess.run([disassembler, "-c", cubin], capture_output=True, text=True, check=True).stdout
    kernels = kernels_of(text)
    if len(kernels) != len(spills):
        problems.append(f"{len(spills)} kernels compiled, {len(kernels)} disassembled")
    general = [r for name, r in zip(names, registers) if GENERAL_KERNEL.search(name)]
    if len(general) != GENERAL_KERNELS or max(general) > REGISTERS // (BLOCKS_PER_PROCESSOR * THREADS):
        problems.append(f"{len(general)} kernels for any rotation, not {GENERAL_KERNELS}, of at most {max(general, default=0)} registers")
    registers_of = {found[1]: r for name, r in zip(names, registers) if (found := KERNEL.search(name))}
    plain = 0
    for name, lines in kernels.items():
        problems += [f"{name}: {p}" for p in forbidden(lines)]
        problems += [f"{name}: {p}" for p in unwaited(name, lines)] if int(architecture) >= WAITS_SINCE else []
        if (found := MOVE_KERNEL.search(name)):
            operations = [i[0] for i in lines if isinstance(i, tuple)]
            for what, moves_16 in (("load", LOAD), ("store", STORE))[: MOVES_16[found[1]]]:
                problems += [] if any(map(moves_16.match, operations)) else [f"{name}: no {what} of 16 bytes"]
        for pattern, want in PLAIN_KERNELS.items():
            if re.search(pattern, name):
                plain += 1
                kind = kind_of(name)
                found = {"registers": registers_of.get(name, 0), **(counts_of(lines, want) if "products" in want else row_of(lines, want))}
                counts[kind] = found
                print(f"sm_{architecture}: {kind}: {found}")
                what = "unit" if "products" in want else "row"
                most = SLOW_UNITS.get((kind, architecture), want[what])
                if int(architecture) >= want["since"] and not 0 < found[what] <= most:
                    problems.append(f"{name}: {found[what]} instructions for a {what}, at most {most}")
                problems += [f"{name}: {p}" for p in not_fast(lines, registers_of.get(name, 0), want, int(architecture))]
    if plain != 14:
        problems.append(f"{plain} plain kernels found, not 14")
    print(f"{said}, {plain} plain kernels, no calls, no local memory", flush=True)
    return problems


def kind_of(name):
    """What a rotation reads, and what it writes if that is another type; or the code of the keys that it moves; or an encoding."""
    if keys := re.search(r"RotateKeysBodyILNS_7KeyCodeE(\d)E", name):
        return "keys in " + ("F32", "F16", "BF16", "E4M3", "E5M2")[int(keys[1])]
    if encoding := re.search(r"EncodeBodyINS_6scalar\d(B?F\d\d)ELb1E", name):
        return "encoding in " + encoding[1]
    kind = re.search(r"scalar\d(B?F\d\d)ELb1ELb(\d)", name)
    return kind[1] + " to FLOAT8" * int(kind[2])


def not_resident(registers, shared, kind, architecture):
    """What keeps a kernel that moves or compares keys from having enough blocks on a multiprocessor."""
    wanted = MOVE_BLOCKS[kind].get(SHARED_KIB[architecture], 3 if architecture == 100 else BLOCKS_PER_PROCESSOR)
    by_registers = REGISTERS // (-(-registers // 8) * 8 * THREADS)
    by_shared = SHARED_KIB[architecture] * 1024 // (shared + 1024)
    found = [] if by_registers >= wanted else [f"{registers} registers: {by_registers} blocks on a multiprocessor"]
    return found + ([] if by_shared >= wanted else [f"{shared} bytes shared: {by_shared} blocks on a multiprocessor"])


def not_fast(lines, registers, want, architecture):
    """What keeps a plain kernel from the speed of memory."""
    operations = [i[0] for i in lines if isinstance(i, tuple)]
    resident = REGISTERS // (-(-registers // 8) * 8 * THREADS) if registers else 0
    found = [] if resident >= want["blocks"] else [f"{registers} registers: {resident} blocks on a multiprocessor"]
    barrier = next((i for i, o in enumerate(operations) if o.startswith("BAR.")), len(operations))
    early = sum(bool(LOAD.match(o)) for o in operations[:barrier])
    if early < want["loads"]:
        found.append(f"{early} loads of 16 bytes before the barrier, not {want['loads']}")
    if want["writes"] and not any(STORE.match(o) for o in operations):
        found.append("no store of 16 bytes")
    if architecture >= want["since"] and len(operations) > want["instructions"]:
        found.append(f"{len(operations)} instructions, at most {want['instructions']}")
    return found


def counts_of(lines, want):
    """What a thread of a plain rotation executes: `before` its barrier, where it computes an angle and loads two units, at least
    and at most; and for one unit after all barriers, `unit` if half split and `unit_most` otherwise. Loops count once."""
    store = next(i for i, o in enumerate(lines) if isinstance(o, tuple) and re.match(r"STG?\.E", o[0]))
    barriers = [i for i, o in enumerate(lines[:store]) if isinstance(o, tuple) and o[0].startswith("BAR.")]
    barrier, last = barriers[0], barriers[-1]
    before = {"product": (re.compile("[FD]FMA"), 14 if want["products"] > 8 else 8), "load": (LOAD, want["loads"])}
    unit = {"product": (re.compile("[FD](MUL|FMA)"), want["products"]), "store": (re.compile(r"STG?\.E"), 2)}
    first, longest = (path_of(lines, 0, lambda i: i == barrier, before, best) for best in (min, max))
    short, most = (path_of(lines, last + 1, lambda i: lines[i][0] == "EXIT", unit, best) for best in (min, max))
    return {"loads": sum(bool(LOAD.match(o)) for o in first), "before": len(first), "before_most": len(longest),
            "unit": len(short), "unit_most": len(most), "pipes": by_pipe(short)}


def row_of(lines, want):
    """What a thread of Encode executes for its pairs of a row: the shortest way round a loop that computes and stores them."""
    wanted = {"product": (re.compile("F(MUL|FMA)"), PAIR_PRODUCTS * want["pairs"]), "store": (STORE, 2)}
    labels = {line: i for i, line in enumerate(lines) if isinstance(line, str)}
    rows = []
    for end, line in enumerate(lines):
        target = re.search(r"\.L_x_\d+", line[1]) if isinstance(line, tuple) and line[0].startswith("BRA") else None
        begin = labels.get(target[0], end) if target else end
        if sum(isinstance(i, tuple) and bool(STORE.match(i[0])) for i in lines[begin:end]) >= 2:
            rows.append(path_of(lines, begin, lambda i, end=end: i == end, wanted, min, end + 1))
    row = min(filter(None, rows), key=len, default=[])
    return {"row": len(row), "pipes": by_pipe(row)}


def path_of(lines, begin, is_end, wanted, best, until=None):
    """The operations on the shortest (best = min) or longest way from line `begin` to the first end, without going back, on which
    operations of each wanted kind are executed at least so often. Empty if there is none."""
    labels = {line: i for i, line in enumerate(lines) if isinstance(line, str)}
    enough = tuple(times for _, times in wanted.values())
    ways = {begin: {(0,) * len(wanted): (0, None)}}  # at each line: wanted operations so far -> length, and the line before
    ended = []
    for i in range(begin, until or len(lines)):
        for seen, (length, way) in ways.pop(i, {}).items():
            if isinstance(lines[i], tuple):
                operation = lines[i][0]
                seen = tuple(min(n + bool(kind.match(operation)), times) for n, (kind, times) in zip(seen, wanted.values()))
                length, way = length + 1, (operation, way)
                if is_end(i):
                    ended += [(length, way)] if seen == enough else []
                    continue
            for following in ways_on(lines, labels, i):
                known = ways.setdefault(following, {}).get(seen)
                if following > i and (known is None or best(length, known[0]) == length):
                    ways[following][seen] = (length, way)
    _, way = best(ended, key=lambda one: one[0], default=(0, None))
    operations = []
    while way is not None:
        operations.append(way[0])
        way = way[1]
    return operations


def ways_on(lines, labels, i):
    """The lines that may be executed after line i."""
    if isinstance(lines[i], str) or not re.match(r"(BRA|EXIT|CALL\.REL)\b", lines[i][0]):
        return [i + 1]
    operation, operands, conditional = lines[i]
    target = [] if operation == "EXIT" else [labels[re.search(r"\.L_x_\d+", operands)[0]]]
    return target + [i + 1] * (conditional or operation.startswith("BRA.U"))


def by_pipe(operations):
    """How many of the instructions each part of a multiprocessor executes."""
    pipes = [next(pipe for pipe, pattern in PIPES if re.match(pattern, o)) for o in operations]
    return {pipe: pipes.count(pipe) for pipe, _ in PIPES if pipe in pipes}


def above(counts, known):
    """The counts that are above those that are written down."""

    def flat(found):
        return {**{name: n for name, n in found.items() if name not in ("pipes", "loads")}, **found["pipes"]}

    return [
        f"{kind}: {name} is {n}, {flat(known[kind]).get(name, 0)} is written down"
        for kind, found in (counts if known else {}).items()
        for name, n in flat(found).items()
        if n > ROOM * flat(known[kind]).get(name, 0) + 1
    ]


def kernels_of(text):
    """Name of each kernel's body -> its lines: labels, and instructions as (operation, operands, whether conditional)."""
    kernels, lines = {}, None
    for line in text.splitlines():
        if line.startswith(".text."):
            found = KERNEL.search(line)
            lines = kernels.setdefault(found[1], []) if found else None
        elif lines is not None and (label := LABEL.match(line)):
            lines.append(label[1])
        elif lines is not None and (instruction := INSTRUCTION.search(line)):
            lines.append((instruction[2], instruction[3], instruction[1] is not None))
    return kernels


def forbidden(lines):
    """Accesses to local memory, and the instructions that call a function or return from one."""
    found = {i[0] for i in lines if isinstance(i, tuple) and re.match(r"(CALL|RET|LDL|STL)\b", i[0]) and not is_jump(lines, i)}
    return [f"has {operation}" for operation in sorted(found)]


def unwaited(name, lines):
    """Accesses to tensors that may come before the kernel has waited for earlier ones, and whether it never waits."""
    accesses = "$." if WAITS_IN_STEPS.search(name) else "LDG" if WAITS_TO_LOAD.search(name) else "LDG|STG|RED|ATOM"
    labels = {line: i for i, line in enumerate(lines) if isinstance(line, str)}
    seen, left, early = set(), [0], set()
    while left:
        i = left.pop()
        if i in seen or i >= len(lines):
            continue
        seen.add(i)
        operation = lines[i][0] if isinstance(lines[i], tuple) else ""
        if operation == "ACQBULK":
            continue
        if re.match(accesses, operation):
            early.add(operation)
        left += ways_on(lines, labels, i)
    found = [f"has {operation} before it waits for earlier kernels" for operation in sorted(early)]
    return found + [f"has no {needed}" for needed in ("ACQBULK", "PREEXIT") if not any(needed == i[0] for i in lines if isinstance(i, tuple))]


def is_jump(lines, instruction):
    """Whether a call goes to a label of the kernel itself. On Ampere and Ada, ptxas writes such a call where some threads of a
    warp leave a loop. Nothing returns from it: a kernel with a RET has a function."""
    target = re.search(r"\.L_x_\d+", instruction[1])
    return instruction[0].startswith("CALL") and target is not None and target[0] in lines


if __name__ == "__main__":
    sys.exit(main())
