#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh OUT.json [--quick]: compares the kernels with numpy, onnxruntime, PyTorch and ggml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tests/support/venv.sh
make_venv build/.venv-peers bench/peers/requirements.txt each

# A separate build with PHASOR_STATIC off, because Debian's static libraries of Abseil cannot be
# linked into a shared library.
shared=build/bench-shared
cmake -S . -B $shared -G Ninja -DCMAKE_BUILD_TYPE=Release -DPHASOR_BUILD_RPC=OFF -DPHASOR_BUILD_TESTS=OFF >/dev/null
cmake --build $shared --target phasor_bench_shim >&2

load_stubs
exec "$venv/bin/python" bench/peers/peers.py "$shared/bench/peers/libphasor_bench_shim.so" "$@"
