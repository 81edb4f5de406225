# SPDX-License-Identifier: Apache-2.0
"""cuda_stubs.py DIR: lets PyTorch's Linux wheel load on a machine without CUDA and its gigabytes of libraries.

The wheel is linked against CUDA's libraries even if only the CPU is used. For each one that is
missing, DIR gets an empty library. DIR also gets functions.so, to be preloaded, which defines their
functions as traps. A call of one ends the process, so no result of the CPU can come from them.
"""

import pathlib
import re
import subprocess
import sys
import sysconfig

CUDA = r"(?:cu|nccl|nvrtc|nvshmem|nvJit|nvml)"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def link(output, *arguments):
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", output, *arguments], check=True)


def main():
    out = pathlib.Path(sys.argv[1])
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    torch = list(site.glob("torch/lib/*.so"))
    if not torch:
        return
    out.mkdir(exist_ok=True)
    libraries = torch + list(site.glob("nvidia/**/*.so*"))
    needed, used, defined = set(), set(), set()
    for library in libraries:
        defined.update(re.findall(r" [TDBRVWi] (\w+)", run("nm", "-D", "--defined-only", library)))
    for library in torch:
        needed.update(re.findall(rf"\[(lib{CUDA}[^\]]*)\]", run("readelf", "-d", library)))
        used.update(re.findall(rf" U ({CUDA}\w+)", run("nm", "-D", library)))
    for name in needed - {library.name for library in libraries}:
        link(out / name, "-x", "c", "/dev/null", f"-Wl,-soname,{name}")
    # These cannot be in the libraries above: a library without symbol versions cannot define
    # symbols that are required with a version.
    traps = [f".globl {name}\n.type {name},@function\n.balign 8\n{name}: ud2\n" for name in sorted(used - defined)]
    source = out / "functions.s"
    source.write_text('.section .note.GNU-stack,""\n.text\n' + "".join(traps))
    link(out / "functions.so", source)


main()
