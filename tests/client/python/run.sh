#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD ARGUMENT...: runs build/.venv's Python with the package of a build tree and its
# programs. Exit status 77, which CTest shows as skipped: the package was not built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

build=$(realpath "$1")
shift
package=$build/client/python
python=${PHASOR_PYTHON_EXECUTABLE:-build/.venv/bin/python}
if ! compgen -G "$package/phasor/_native*.so" >/dev/null || [[ ! -x $python ]]; then
  echo "SKIP: the Python package is not built: ./dev test installs client/python/requirements.txt and builds it (offline? no python3-dev?)"
  exit 77
fi

# The commands of the wheel, as the build tree has them.
programs=$package/programs
mkdir -p "$programs"
ln -sf "$build/server/phasor-server" "$build/client/cli/phasor" "$programs"
export PYTHONPATH=$package PHASOR_PROGRAMS=$programs PYTHONDONTWRITEBYTECODE=1
export PHASOR_FAKE_GPU=$build/tests/client/python
exec "$python" "$@"
