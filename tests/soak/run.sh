#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD OUT [MINUTES [CALLS_A_SECOND]]: installs the clients once, generates their code from proto/, then runs
# soak.py. Exit status 77: the packages are not available.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

source tests/support/venv.sh
make_venv build/.venv-soak tests/soak/requirements.txt ||
  { echo "SKIP: tests/soak/requirements.txt cannot be installed (offline?)" && exit 77; }
generated=build/soak/generated
mkdir -p "$generated"
# shellcheck disable=SC2046  # one argument per file
"$venv/bin/python" -m grpc_tools.protoc -I proto --python_out="$generated" --grpc_python_out="$generated" \
  $(cd proto && find phasor/v1 inference -name '*.proto')
export PYTHONPATH=$generated PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" tests/soak/soak.py "$@"
