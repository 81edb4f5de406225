#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh OUT.json [--quick]: compares the server with Triton Inference Server. What cannot be
# installed is skipped with a warning.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

source tests/support/venv.sh
wanted=build/triton-requirements.txt
cat bench/triton/requirements.txt <(sed -n '/^# torch/,$p' bench/peers/requirements.txt) >$wanted
cmp -s $wanted build/.venv-triton/requirements.txt || rm -rf build/.venv-triton
# Triton's Python backend brings its own interpreter, which uses this interpreter's standard
# library. That only works with Debian's Python 3.11; a newer release of 3.11 does not fit.
[[ ! -x /usr/bin/python3 ]] || venv_python=/usr/bin/python3
make_venv build/.venv-triton $wanted each

exec "$venv/bin/python" bench/triton/compare.py build/release/server/phasor-server "$PWD/$venv/cuda-stubs" "$@"
