#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# moves.sh BUILD OUT.json [--quick]: moves of cached keys by the Python package of a build tree, beside LMCache and ggml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

package=$(realpath "$1")/client/python
shift
if ! compgen -G "$package/phasor/_native*.so" >/dev/null; then
  echo "SKIP: the Python package is not built (offline? no python3-dev?): no rows beside LMCache and ggml" >&2
  exit 0
fi
source tests/support/venv.sh
make_venv build/.venv-peers bench/peers/requirements.txt each
load_stubs
PYTHONPATH=$package exec "$venv/bin/python" bench/peers/moves.py "$@"
