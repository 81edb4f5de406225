#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD [--update|--update-models]: installs the upstream packages once, then runs run.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

venv=build/.venv-conformance
stubs=$venv/cuda-stubs
stamp=$venv/requirements.txt

if ! cmp -s tests/conformance/requirements.txt "$stamp"; then
  echo "installing the upstream packages into $venv (about 1 GB)" >&2
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check --no-deps -r tests/conformance/requirements.txt </dev/null
  "$venv/bin/python" bench/peers/cuda_stubs.py "$stubs"
  cp tests/conformance/requirements.txt "$stamp"
fi

libraries=$(find "$PWD/$venv" -path '*/nvidia/*' -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
export LD_LIBRARY_PATH=$PWD/$stubs${libraries:+:$libraries}
if [[ -f $stubs/functions.so ]]; then export LD_PRELOAD=$PWD/$stubs/functions.so; fi
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TRANSFORMERS_VERBOSITY=error PYTHONWARNINGS=ignore
export PYTORCH_JIT=0 # walk.py notes which functions run, and compiled ones are not noted
mkdir -p build/conformance
if [[ ${2:-} == --update-models ]]; then exec "$venv/bin/python" tests/conformance/run.py "$@"; fi
rc=0
"$venv/bin/python" tests/conformance/run.py "$@" | tee build/conformance/conformance.txt || rc=$?
"$venv/bin/python" tests/conformance/moves.py "$1" | tee build/conformance/moves.txt || rc=$?
env -u LD_PRELOAD -u LD_LIBRARY_PATH "$venv/bin/python" tests/conformance/llama_states.py "$1" |
  tee build/conformance/llama_states.txt || rc=$?
exit $rc
