#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cross-compiles the kernels for NEON and compares them with the scalar reference under qemu's
# user-mode emulation. Without the cross compiler it skips (exit 77). Without the emulator it only
# compiles, and says so.
set -euo pipefail
root=$1 work=$2
cxx=aarch64-linux-gnu-g++
command -v $cxx >/dev/null || { echo "SKIP: $cxx is not installed"; exit 77; }
mkdir -p "$work"
sources=(tests/kernels/cross/arm_bits.cc kernels/cpu/encode.cc kernels/cpu/rotary.cc kernels/cpu/targets.cc
         kernels/reference/{encode,key_rows,rotary}.cc)
cd "$root"
# As kernels/CMakeLists.txt has it: Phasor uses no SVE, not even where compilers may.
disabled=$(grep -o 'HWY_DISABLED_TARGETS=[^"]*' kernels/CMakeLists.txt)
for arch in armv8-a armv8.5-a+sve2; do
  $cxx -std=c++20 -O1 -ffp-contract=off -march=$arch "-D$disabled" -I. -idirafter /usr/include -static \
    "${sources[@]}" -o "$work/arm_bits_$arch" -Wl,--gc-sections -ffunction-sections
  if command -v qemu-aarch64 >/dev/null; then
    echo -n "$arch: "
    qemu-aarch64 -cpu max "$work/arm_bits_$arch"
  else
    echo "$arch: compiles; qemu-aarch64 is not installed, so it did not run"
  fi
done
