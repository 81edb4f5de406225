#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package.sh BUILD_DIR OUT_DIR: makes OUT_DIR/phasor-gpu-test and phasor-gpu-test.tar.gz for a
# machine with a GPU and without our libraries. They hold run.sh, and programs of a build with CUDA
# that need only the C library. Kernels of other projects are included unless PHASOR_WITHOUT_PEERS
# is set.
set -euo pipefail
build=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")/phasor-gpu-test
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

max_mib=55
die() { echo "package.sh: $*" >&2; exit 1; }

rm -rf "$out" "$out.tar.gz"
mkdir -p "$out"/{bin,lib,data,peers}
for program in tests/kernels/cuda_driver_test tests/gpu/gpu_ipc tests/gpu/libgpu_provoke.so bench/cuda/bench_cuda bench/server/bench_cores deploy/phasor-bundle; do
  [[ -x $build/$program ]] || die "$program is missing: build it, with PHASOR_CUDA=ON"
done
strip --strip-all -o "$out/bin/cuda_driver_test" "$build/tests/kernels/cuda_driver_test"
strip --strip-all -o "$out/bin/gpu_ipc" "$build/tests/gpu/gpu_ipc"
strip --strip-unneeded -o "$out/lib/libgpu_provoke.so" "$build/tests/gpu/libgpu_provoke.so"
strip --strip-all -o "$out/bin/bench_cuda" "$build/bench/cuda/bench_cuda"
strip --strip-all -o "$out/bin/bench_cores" "$build/bench/server/bench_cores"
strip --strip-all -o "$out/bin/phasor" "$build/deploy/phasor-bundle"
ln -s phasor "$out/bin/phasor-server"
# What Debian has no archive of, and what these in turn need; not the C library, which a machine has one of.
ldd "$build/deploy/phasor-bundle" "$build/bench/server/bench_cores" "$build/tests/gpu/gpu_ipc" | awk '$2 == "=>" {print $3}' |
  grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' |
  sort -u | while read -r library; do cp -L "$library" "$out/lib/"; done

cp tests/gpu/run.sh "$out/"
git rev-parse --short=12 HEAD >"$out/REVISION" 2>/dev/null || echo unknown >"$out/REVISION"
# Four megabytes are worth a trip to the device: --backend=cuda computes what is small on the CPU.
python3 - "$out/data" <<'PYTHON'
import pathlib, random, struct, sys
tokens, heads, lanes = 128, 64, 128
for code, size in (("e", 2), ("f", 4)):
    values = random.Random(size).choices([x / 977 for x in range(-3000, 3001) if x], k=tokens * heads * lanes)
    header = f"{{'descr': '<f{size}', 'fortran_order': False, 'shape': ({tokens}, {heads}, {lanes}), }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    pathlib.Path(sys.argv[1], f"q.f{size}.npy").write_bytes(head + struct.pack(f"<{len(values)}{code}", *values))
PYTHON
[[ -n ${PHASOR_WITHOUT_PEERS:-} ]] ||
  bench/cuda/peers/build.sh "$out/peers" "$(sed -n 's/^PHASOR_NVCC:[A-Z]*=//p' "$build/CMakeCache.txt")" \
    "$(sed -n 's/^PHASOR_CUDA_ARCHITECTURES:[A-Z]*=//p' "$build/CMakeCache.txt")"
tar -C "$(dirname "$out")" -czf "$out.tar.gz" phasor-gpu-test
mib=$(($(stat -c %s "$out.tar.gz") / 1048576 + 1))
((mib < max_mib)) || die "the package has $mib MiB, at most $max_mib can be carried"
echo "$out.tar.gz: $mib MiB"
