#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD [TEST.py] [ARGUMENT...]: installs tritonclient once, then runs TEST.py of this
# folder, by default clients_test.py. Exit status 77, which CTest shows as skipped: the packages are
# not available.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

source tests/support/venv.sh
# Several tests come here at once.
exec 9>build/.venv-oip.lock
flock 9
make_venv build/.venv-oip tests/oip/requirements.txt ||
  { echo "SKIP: tests/oip/requirements.txt cannot be installed (offline?): no Python client has been run" && exit 77; }
exec 9>&-

PHASOR_BUILD=$(realpath "$1")
export PHASOR_BUILD PYTHONDONTWRITEBYTECODE=1
shift
test=clients_test.py
if [[ ${1:-} == *.py ]]; then test=$1 && shift; fi
exec "$venv/bin/python" "tests/oip/$test" "$@"
