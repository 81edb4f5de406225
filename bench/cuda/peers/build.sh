#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh OUT NVCC ARCHITECTURES: makes what peers.py loads in OUT: Phasor's kernels as a library,
# those of FlashInfer and sglang compiled from their wheels, and Liger's Triton file. Names what it
# could not get in OUT/missing.txt; peers.py skips that.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
nvcc=$2 architectures=$3
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
here=bench/cuda/peers
cache=build/cuda-peers
shared=build/bench-shared

: >"$out/missing.txt"
missing() {
  echo "WARNING: $* will be SKIPPED" >&2
  echo "$*" >>"$out/missing.txt"
}
# PyPI has no wheel, and its source package needs PyTorch before it even tells its name.
missing "flash-attn: its source package cannot be downloaded without building it"

# fetch PACKAGE: downloads its wheel and unpacks it into `$cache`.
fetch() {
  local requirement folder=$cache/$1
  requirement=$(grep "^$1==" $here/requirements.txt)
  if [[ $(cat "$folder/version" 2>/dev/null) != "$requirement" ]]; then
    rm -rf "$folder" && mkdir -p "$folder"
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: -d "$folder" "$requirement" &&
      (cd "$folder" && python3 -m zipfile -e ./*.whl . && rm ./*.whl) || return 1
    echo "$requirement" >"$folder/version"
  fi
}

# compile NAME "ARCHITECTURE..." FLAG...: compiles NAME.cu to libpeer_NAME.so.
compile() {
  local name=$1 wanted=$2 flags=(-shared -O3 -std=c++20 -cudart static -Xcompiler=-fPIC) a
  shift 2
  for a in $wanted; do flags+=(-gencode "arch=compute_$a,code=sm_$a"); done
  "$nvcc" "${flags[@]}" "$@" -o "$out/libpeer_$name.so" "$here/$name.cu" 2>"$cache/$name.log"
}

mkdir -p $cache
# Compile each as its own JIT does. FlashInfer needs its own headers of CUDA, which are newer than
# the toolkit's. sglang's kernel is compiled for one architecture at a time.
data=$cache/flashinfer-python/flashinfer/data
if ! { fetch flashinfer-python && compile flashinfer "${architectures//;/ }" -use_fast_math "-I$data/include" \
  "-I$data/cccl/libcudacxx/include"; }; then
  missing "FlashInfer: $(tail -1 $cache/flashinfer.log 2>/dev/null || echo cannot be downloaded)"
fi
jit=$cache/sglang/sglang/kernels/jit
newest=${architectures##*;}
if ! { fetch sglang && fetch apache-tvm-ffi && compile sglang "$newest" --expt-relaxed-constexpr "-DSGL_CUDA_ARCH=${newest}0" \
  -I$jit/include -I$jit/csrc "-I$cache/apache-tvm-ffi/tvm_ffi/include"; }; then
  missing "sglang: $(tail -1 $cache/sglang.log 2>/dev/null || echo cannot be downloaded)"
fi
if fetch liger-kernel; then
  cp $cache/liger-kernel/liger_kernel/ops/rope.py "$out/liger_rope.py"
else
  missing "Liger: cannot be downloaded"
fi

# A separate build, because Debian's static libraries of Abseil cannot be linked into a shared
# library. Abseil's shared libraries are copied along.
cmake -S . -B $shared -G Ninja -DCMAKE_BUILD_TYPE=Release -DPHASOR_BUILD_RPC=OFF -DPHASOR_BUILD_TESTS=OFF >/dev/null
cmake --build $shared --target phasor_cuda_shim >&2
strip --strip-unneeded -o "$out/libphasor_cuda_shim.so" $shared/bench/cuda/libphasor_cuda_shim.so
ldd $shared/bench/cuda/libphasor_cuda_shim.so | awk '/libabsl/ {print $3}' | xargs -I{} cp -L {} "$out/"
cp $here/peers.py bench/peers/harness.py "$out/"
