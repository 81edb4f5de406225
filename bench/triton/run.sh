#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh OUT.json [--quick]: compares the server with Triton Inference Server. What cannot be
# installed is skipped with a warning.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

venv=build/.venv-triton
stubs=$venv/cuda-stubs
stamp=$venv/requirements.txt

wanted() { cat bench/triton/requirements.txt <(sed -n '/^# torch/,$p' bench/peers/requirements.txt); }

# Triton's Python backend brings its own interpreter, which uses this interpreter's standard
# library. That only works with Debian's Python 3.11; a newer release of 3.11 does not fit.
python=/usr/bin/python3
[[ -x $python ]] || python=python3

if ! cmp -s <(wanted) "$stamp"; then
  echo "installing Triton and PyTorch into $venv (about 1.5 GB)" >&2
  rm -rf "$venv"
  $python -m venv "$venv"
  complete=yes
  while read -r package; do
    "$venv/bin/pip" install -q --disable-pip-version-check --no-deps "$package" </dev/null ||
      { complete=no && echo "WARNING: $package cannot be installed: what needs it will be SKIPPED" >&2; }
  done < <(wanted | grep -v '^#')
  "$venv/bin/python" bench/peers/cuda_stubs.py "$stubs"
  if [[ $complete == yes ]]; then wanted >"$stamp"; fi
fi

exec "$venv/bin/python" bench/triton/compare.py build/release/server/phasor-server "$PWD/$stubs" "$@"
