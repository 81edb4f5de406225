#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh OUT.json [--quick]: compares the kernels with numpy, onnxruntime, PyTorch and ggml. A peer
# that cannot be installed is skipped with a warning.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

venv=build/.venv-peers
stubs=$venv/cuda-stubs
shared=build/bench-shared
stamp=$venv/requirements.txt

if ! cmp -s bench/peers/requirements.txt "$stamp"; then
  echo "installing the peers into $venv (about 1.5 GB, ggml is compiled)" >&2
  python3 -m venv "$venv"
  complete=yes
  while read -r package; do
    "$venv/bin/pip" install -q --disable-pip-version-check --no-deps "$package" </dev/null ||
      { complete=no && echo "WARNING: $package cannot be installed: what needs it will be SKIPPED" >&2; }
  done < <(grep -v '^#' bench/peers/requirements.txt)
  "$venv/bin/python" bench/peers/cuda_stubs.py "$stubs"
  if [[ $complete == yes ]]; then cp bench/peers/requirements.txt "$stamp"; fi
fi

# A separate build with PHASOR_STATIC off, because Debian's static libraries of Abseil cannot be
# linked into a shared library.
cmake -S . -B $shared -G Ninja -DCMAKE_BUILD_TYPE=Release -DPHASOR_BUILD_RPC=OFF -DPHASOR_BUILD_TESTS=OFF >/dev/null
cmake --build $shared --target phasor_bench_shim >&2

libraries=$(find "$PWD/$venv" -path '*/nvidia/*' -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
export LD_LIBRARY_PATH=$PWD/$stubs${libraries:+:$libraries}
if [[ -f $stubs/functions.so ]]; then export LD_PRELOAD=$PWD/$stubs/functions.so; fi
exec "$venv/bin/python" bench/peers/peers.py "$shared/bench/peers/libphasor_bench_shim.so" "$@"
