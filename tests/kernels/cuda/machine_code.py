# SPDX-License-Identifier: Apache-2.0
"""machine_code.py OUT_DIR ARCHITECTURES NVCC FLAG...: checks the machine code of the GPU kernels.

Compiles kernels/cuda/launch.cu for each GPU architecture as the build does. No kernel may spill registers, use local memory
or call a function. The kernels that are used most must leave room for enough blocks on a multiprocessor, move 16 bytes at
once, have all loads of a thread in flight together, and stay below a number of instructions. Exit status 77: skipped, with
the reason printed.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
SKIP = 77
KERNEL = re.compile(r"6KernelI(\w+?)EEvNS1_9Arguments")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+)?([A-Z][\w.]*)([^;]*);")
LABEL = re.compile(r"^(\.L_x_\d+):")
LOAD, STORE = re.compile(r"LDG?\.E\.(ENL2\.)?(128|256)"), re.compile(r"STG?\.E\.(ENL2\.)?(128|256)")
# Kernels for one plain item of wide units, by the template arguments of their bodies. A thread of a rotation has two units;
# it reads each in two loads, and both before it waits for its block. `writes`: 16 bytes at once, unless it narrows to FLOAT8.
# The code is there twice: for an item among the arguments, and for one in memory. `instructions` counts both, on
# architectures that have the conversions: `since`. `unit` counts those of one unit, from the barrier to the end of the store.
BLOCKS_PER_PROCESSOR, THREADS, REGISTERS = 4, 256, 65536
PLAIN_KERNELS = {
    r"RotaryBodyINS_6scalar\d(F32|F64)ELb1ELb0ELb1E": {"blocks": BLOCKS_PER_PROCESSOR, "loads": 4, "writes": True, "instructions": 1750, "unit": 70, "since": 75},
    r"RotaryBodyINS_6scalar\d(F16|BF16)ELb1ELb0ELb1E": {"blocks": BLOCKS_PER_PROCESSOR, "loads": 4, "writes": True, "instructions": 1750, "unit": 125, "since": 80},
    r"RotaryBodyINS_6scalar\d(F16|BF16)ELb1ELb1ELb1E": {"blocks": BLOCKS_PER_PROCESSOR, "loads": 4, "writes": False, "instructions": 2150, "unit": 215, "since": 89},
    r"EncodeBodyINS_6scalar\dF32ELb1E": {"blocks": 2, "loads": 0, "writes": True, "instructions": 5200, "since": 75},
}
# Which part of a multiprocessor executes an instruction; the first that matches.
PIPES = (
    ("memory", r"(LD|ST)[GS]?(\.|$)|LDC|LDGSTS|RED|ATOM|MEMBAR"),
    ("f64", r"D(ADD|MUL|FMA|SETP|MNMX)"),
    ("special", r"MUFU|F2F\b|F2I|I2F"),
    ("float", r"F(ADD|MUL|FMA|MNMX|SEL|SETP)|F2FP|H(ADD|MUL|FMA|SETP|MNMX)2"),
    ("control", r"BRA|BRX|BAR|EXIT|BSSY|BSYNC|NOP|CALL|RET|WARPSYNC|ACQBULK|DEPBAR|PREEXIT|YIELD"),
    ("uniform", r"U[A-Z]|R2UR|S2UR"),
    ("integer", r""),
)
# Kernels that move or compare keys, one for each code, with a barrier between any two steps. So many blocks must fit on a
# multiprocessor, by registers and by shared memory, of which a block takes 1 KiB more than it uses: on multiprocessors with 64
# and 100 KiB, and on larger ones.
MOVE_KERNEL, MOVE_KERNELS = re.compile(r"(Move|Compare)KeysBodyILNS_7KeyCodeE\d+E"), 22
MOVE_BLOCKS = {"Move": {64: 2, 100: 3}, "Compare": {64: 1, 100: 2}}
SHARED_KIB = {75: 64, 80: 164, 86: 100, 89: 100, 90: 228, 100: 228, 120: 100}


def main():
    out, architectures, nvcc, flags = pathlib.Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3], sys.argv[4:]
    disassembler = find_disassembler(nvcc)
    out.mkdir(parents=True, exist_ok=True)
    problems = []
    for architecture in architectures:
        problems += [f"sm_{architecture}: {p}" for p in check(out, architecture, nvcc, flags, disassembler)]
    for problem in problems:
        print(f"FAIL: {problem}")
    if not problems and disassembler is None:
        print("SKIP: no nvdisasm beside nvcc, on the path or in build/.venv: spills were looked for, instructions were not")
        return SKIP
    return 1 if problems else 0


def find_disassembler(nvcc):
    """nvdisasm of the toolkit, or the one that ./dev installs from PyPI."""
    beside = pathlib.Path(nvcc).resolve().parent / "nvdisasm"
    found = [str(beside)] if beside.exists() else []
    found += filter(None, [shutil.which("nvdisasm")])
    found += map(str, sorted((ROOT / "build/.venv").glob("lib/python*/site-packages/nvidia/*/bin/nvdisasm")))
    return next((f for f in found if os.access(f, os.X_OK)), None)


def check(out, architecture, nvcc, flags, disassembler):
    cubin = out / f"sm_{architecture}.cubin"
    code = f"arch=compute_{architecture},code=sm_{architecture}"
    command = [nvcc, *flags, "-gencode", code, "-Xptxas", "-v", "-cubin", "-o", cubin, ROOT / "kernels/cuda/launch.cu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return ["does not compile: " + (done.stdout + done.stderr)[-800:]]
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr)
    problems = [] if spills else ["ptxas said nothing of registers"]
    problems += [f"a kernel has a stack frame or spills: {s}" for s in spills if s != ("0", "0", "0")]
    names = re.findall(r"Compiling entry function '([^']*)'", done.stderr)
    used = re.findall(r"Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?", done.stderr)
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
    registers_of = {found[1]: r for name, r in zip(names, registers) if (found := KERNEL.search(name))}
    plain = 0
    for name, lines in kernels.items():
        problems += [f"{name}: {p}" for p in forbidden(lines)]
        if (found := MOVE_KERNEL.search(name)):
            operations = [i[0] for i in lines if isinstance(i, tuple)]
            for what, moves_16 in (("load", LOAD), ("store", STORE))[: 2 if found[1] == "Move" else 1]:
                problems += [] if any(map(moves_16.match, operations)) else [f"{name}: no {what} of 16 bytes"]
        for pattern, want in PLAIN_KERNELS.items():
            if re.search(pattern, name):
                plain += 1
                if unit := unit_of([i[0] for i in lines if isinstance(i, tuple)]):
                    kind = re.search(r"scalar\d(B?F\d\d)ELb1ELb(\d)", name)
                    print(f"sm_{architecture}: rotation in {kind[1]}{' to FLOAT8' * int(kind[2])}: {registers_of.get(name, 0)} registers, "
                          f"{len(unit)} instructions for a unit: {by_pipe(unit)}")
                problems += [f"{name}: {p}" for p in not_fast(lines, registers_of.get(name, 0), want, int(architecture))]
    if plain != 7:
        problems.append(f"{plain} plain kernels found, not 7")
    print(f"{said}, {plain} plain kernels, no calls, no local memory", flush=True)
    return problems


def not_resident(registers, shared, kind, architecture):
    """What keeps a kernel that moves or compares keys from having enough blocks on a multiprocessor."""
    wanted = MOVE_BLOCKS[kind].get(SHARED_KIB[architecture], BLOCKS_PER_PROCESSOR)
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
    unit = unit_of(operations)
    if architecture >= want["since"] and len(unit) > want.get("unit", len(unit)):
        found.append(f"{len(unit)} instructions for a unit, at most {want['unit']}")
    return found


def unit_of(operations):
    """The instructions of a thread's first unit in a plain rotation: from the barrier to where a thread with one unit ends."""
    barrier = next((i for i, o in enumerate(operations) if o.startswith("BAR.")), len(operations))
    end = next((i for i, o in enumerate(operations) if i > barrier and o == "EXIT"), barrier)
    return operations[barrier + 1 : end + 1]


def by_pipe(operations):
    """How many of the instructions each part of a multiprocessor executes, as text."""
    pipes = [next(pipe for pipe, pattern in PIPES if re.match(pattern, o)) for o in operations]
    return ", ".join(f"{pipes.count(pipe)} {pipe}" for pipe, _ in PIPES if pipe in pipes)


def kernels_of(text):
    """Name of each kernel's body -> its lines: labels, and instructions as (operation, operands)."""
    kernels, lines = {}, None
    for line in text.splitlines():
        if line.startswith(".text."):
            found = KERNEL.search(line)
            lines = kernels.setdefault(found[1], []) if found else None
        elif lines is not None and (label := LABEL.match(line)):
            lines.append(label[1])
        elif lines is not None and (instruction := INSTRUCTION.search(line)):
            lines.append((instruction[1], instruction[2]))
    return kernels


def forbidden(lines):
    """Accesses to local memory, and the instructions that call a function or return from one."""
    found = {i[0] for i in lines if isinstance(i, tuple) and re.match(r"(CALL|RET|LDL|STL)\b", i[0]) and not is_jump(lines, i)}
    return [f"has {operation}" for operation in sorted(found)]


def is_jump(lines, instruction):
    """Whether a call goes to a label of the kernel itself. On Ampere and Ada, ptxas writes such a call where some threads of a
    warp leave a loop. Nothing returns from it: a kernel with a RET has a function."""
    target = re.search(r"\.L_x_\d+", instruction[1])
    return instruction[0].startswith("CALL") and target is not None and target[0] in lines


if __name__ == "__main__":
    sys.exit(main())
