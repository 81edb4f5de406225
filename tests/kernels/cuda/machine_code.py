# SPDX-License-Identifier: Apache-2.0
"""machine_code.py OUT_DIR ARCHITECTURES NVCC FLAG...: checks the machine code of the GPU kernels.

Compiles kernels/cuda/launch.cu for each GPU architecture as the build does. No kernel may spill registers, use local memory
or call a function, and the loops of the wide kernels must move 16 bytes at once. Exit status 77: skipped, with the reason
printed.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
SKIP = 77
KERNEL = re.compile(r"6KernelI(\w+?)EEv\w*5BatchE")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+)?([A-Z][\w.]*)([^;]*);")
LABEL = re.compile(r"^(\.L_x_\d+):")
LOAD, STORE = re.compile(r"LDG\.E\.(ENL2\.)?(128|256)"), re.compile(r"STG\.E\.(ENL2\.)?(128|256)")
# The kernels whose loops move 16 bytes at once, and the accesses that do so. The first flag of
# rotary's template is its width. A third flag, if there is one, says that the kernel writes
# narrower elements than it reads.
ROTARY = r"RotaryBodyI(?:(?!Lb).)*Lb1ELb[01]E"
WIDE_KERNELS = {ROTARY + "(?!Lb1E)": (LOAD, STORE), ROTARY + "Lb1E": (LOAD,), "EncodeBody": (STORE,)}


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
    registers = [int(r) for r in re.findall(r"Used (\d+) registers", done.stderr)]
    said = f"sm_{architecture}: {len(spills)} kernels, {min(registers)} to {max(registers)} registers, no spills"
    if disassembler is None:
        print(said, flush=True)
        return problems
    text = subprocess.run([disassembler, "-c", cubin], capture_output=True, text=True, check=True).stdout
    kernels = kernels_of(text)
    if len(kernels) != len(spills):
        problems.append(f"{len(spills)} kernels compiled, {len(kernels)} disassembled")
    loops = 0
    for name, lines in kernels.items():
        problems += [f"{name}: {p}" for p in forbidden(lines)]
        for pattern, accesses in WIDE_KERNELS.items():
            if re.search(pattern, name):
                loops += 1
                if not moves_wide(lines, accesses):
                    problems.append(f"{name}: no loop moves 16 bytes at once")
    if loops == 0:
        problems.append("no wide kernel found")
    print(f"{said}, {loops} wide kernels with 16-byte loops, no calls, no local memory", flush=True)
    return problems


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


def moves_wide(lines, accesses):
    """Whether a loop, from a label to a branch back to it, has these accesses."""
    at = {line: i for i, line in enumerate(lines) if isinstance(line, str)}
    for i, line in enumerate(lines):
        target = isinstance(line, tuple) and line[0].startswith("BRA") and re.search(r"\.L_x_\d+", line[1])
        if target and at.get(target[0], i) < i:
            body = [b[0] for b in lines[at[target[0]] : i] if isinstance(b, tuple)]
            if all(any(pattern.match(o) for o in body) for pattern in accesses):
                return True
    return False


if __name__ == "__main__":
    sys.exit(main())
