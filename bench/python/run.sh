#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD OUT.json [--quick]: the Python package beside numpy, and beside torch, transformers,
# rotary-embedding-torch, grpcio and tritonclient where `./dev conformance` and tests/oip/run.sh have
# installed them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build=$1
shift
# One thread each, and BLAS kernels of this machine.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore
PHASOR_BENCH_CLIENTS=$(compgen -G "$PWD/build/.venv-oip/lib/python3*/site-packages" || true)
export PHASOR_BENCH_CLIENTS
[[ -n $PHASOR_BENCH_CLIENTS ]] || echo "WARNING: without grpcio and tritonclient: tests/oip/run.sh installs them" >&2

status=0
tests/client/python/with_torch.sh "$build" bench/python/bench.py "$@" || status=$?
[[ $status == 77 ]] || exit "$status"
echo "WARNING: without torch, transformers and rotary-embedding-torch" >&2
exec tests/client/python/run.sh "$build" bench/python/bench.py "$@"
