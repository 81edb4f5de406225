#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD [--update|--update-models]: installs the upstream packages once, then runs run.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

source tests/support/venv.sh
make_venv build/.venv-conformance tests/conformance/requirements.txt
load_stubs
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
