# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced at the root of the repository: environments of pinned Python packages, each made once.

# make_venv VENV REQUIREMENTS [each]: makes $venv if it is not of these REQUIREMENTS. The status says whether that worked; with
# `each`, packages that cannot be installed are left out with a warning. $venv_python makes it, python3 unless set.
make_venv() {
  local requirement complete=yes
  venv=$1
  if cmp -s "$2" "$venv/requirements.txt"; then return; fi
  echo "installing $2 into $venv" >&2
  "${venv_python:-python3}" -m venv "$venv" || return
  local install=("$venv/bin/pip" install -q --disable-pip-version-check --no-deps)
  if [[ ${3:-} == each ]]; then
    while read -r requirement; do
      "${install[@]}" "$requirement" </dev/null ||
        { complete=no && echo "WARNING: $requirement cannot be installed: what needs it will be SKIPPED" >&2; }
    done < <(grep -v '^#' "$2")
  else
    "${install[@]}" -r "$2" </dev/null || return
  fi
  if grep -q '^torch==' "$2"; then "$venv/bin/python" bench/peers/cuda_stubs.py "$venv/cuda-stubs" || return; fi
  [[ $complete == no ]] || cp "$2" "$venv/requirements.txt"
}

# PyTorch's wheel in $venv is that for CUDA (bench/peers/cuda_stubs.py): lets programs load it from here on.
load_stubs() {
  local stubs=$PWD/$venv/cuda-stubs libraries
  libraries=$(find "$PWD/$venv" -path '*/nvidia/*' -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
  export LD_LIBRARY_PATH=$stubs${libraries:+:$libraries}
  if [[ -f $stubs/functions.so ]]; then export LD_PRELOAD=$stubs/functions.so; fi
}
