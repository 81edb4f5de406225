#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD OUT.json [--quick]: the Python package beside numpy, and beside torch, transformers,
# rotary-embedding-torch, grpcio and tritonclient where tests/conformance/run.sh and
# tests/oip/run.sh have installed them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build=$(realpath "$1")
shift
python=build/.venv/bin/python
conformance=build/.venv-conformance
if [[ -x $conformance/bin/python ]]; then
  python=$conformance/bin/python
  stubs=$PWD/$conformance/cuda-stubs
  libraries=$(find "$PWD/$conformance" -path '*/nvidia/*' -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
  export LD_LIBRARY_PATH=$stubs${libraries:+:$libraries}
  if [[ -f $stubs/functions.so ]]; then export LD_PRELOAD=$stubs/functions.so; fi
else
  echo "WARNING: without torch, transformers and rotary-embedding-torch: ./dev conformance installs them" >&2
fi
clients=$(compgen -G "build/.venv-oip/lib/python3*/site-packages" || true)
[[ -n $clients ]] || echo "WARNING: without grpcio and tritonclient: tests/oip/run.sh installs them" >&2

# One thread each, and no other BLAS kernels than the machine's own.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1
export PHASOR_PYTHON_EXECUTABLE=$python PHASOR_BENCH_CLIENTS=$clients
exec tests/client/python/run.sh "$build" bench/python/bench.py "$@"
