#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cross-compiles the kernels for NEON, SVE and SVE2 and compares them with the scalar reference
# under qemu's user-mode emulation. Without the cross compiler it skips (exit 77). Without the
# emulator it only compiles, and says so.
set -euo pipefail
root=$1 work=$2
cxx=aarch64-linux-gnu-g++
command -v $cxx >/dev/null || { echo "SKIP: $cxx is not installed"; exit 77; }
mkdir -p "$work"
sources=(tests/kernels/cross/arm_bits.cc kernels/cpu/encode.cc kernels/cpu/rotary.cc kernels/cpu/targets.cc
         kernels/reference/encode.cc kernels/reference/rotary.cc)
cd "$root"
ran=no
for target in neon:-march=armv8-a sve:-march=armv8.2-a+sve sve2:-march=armv8.5-a+sve2; do
  name=${target%%:*} flags=${target#*:}
  $cxx -std=c++20 -O1 -ffp-contract=off "$flags" -I. -idirafter /usr/include -static \
    "${sources[@]}" -o "$work/arm_bits_$name" -Wl,--gc-sections -ffunction-sections
  echo "$name: compiles"
  command -v qemu-aarch64 >/dev/null || continue
  # SVE runs with vectors of 128, 256 and 512 bits; NEON has one size.
  for bits in 128 256 512; do
    [ "$name" = neon ] && [ $bits != 128 ] && continue
    echo -n "$name, $bits bits: "
    qemu-aarch64 -cpu "max,sve-default-vector-length=$((bits / 8))" "$work/arm_bits_$name"
    ran=yes
  done
done
[ $ran = yes ] || echo "qemu-aarch64 is not installed: compiled, not run"
