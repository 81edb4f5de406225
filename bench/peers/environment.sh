# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced at the root of the repository: installs the peers once into $venv. One that cannot be installed is skipped with a
# warning. load_stubs sets what they need to run.
venv=build/.venv-peers
stubs=$venv/cuda-stubs
stamp=$venv/requirements.txt

if ! cmp -s bench/peers/requirements.txt "$stamp"; then
  echo "installing the peers into $venv (about 1.5 GB, ggml is compiled)" >&2
  python3 -m venv "$venv"
  complete=yes
  while read -r requirement; do
    "$venv/bin/pip" install -q --disable-pip-version-check --no-deps "$requirement" </dev/null ||
      { complete=no && echo "WARNING: $requirement cannot be installed: what needs it will be SKIPPED" >&2; }
  done < <(grep -v '^#' bench/peers/requirements.txt)
  "$venv/bin/python" bench/peers/cuda_stubs.py "$stubs"
  if [[ $complete == yes ]]; then cp bench/peers/requirements.txt "$stamp"; fi
fi

# PyTorch's wheel is that for CUDA: see cuda_stubs.py. For the program of the peers only.
load_stubs() {
  local libraries
  libraries=$(find "$PWD/$venv" -path '*/nvidia/*' -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
  export LD_LIBRARY_PATH=$PWD/$stubs${libraries:+:$libraries}
  if [[ -f $stubs/functions.so ]]; then export LD_PRELOAD=$PWD/$stubs/functions.so; fi
}
