#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quickstart_from_source.sh SOURCE_DIR CXX [--build]: configures a project that has Phasor as a part of itself, by
# add_subdirectory and by FetchContent, and compiles the quickstart there. With --build, which compiles all of Phasor's
# client twice, also links and runs it.
set -euo pipefail
source=$1 cxx=$2 mode=${3:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi

# consumer BY COMPONENT [OPTION...]
consumer() {
  local by=$1 component=$2
  cmake -G Ninja -S "$source/tests/client/consumer" -B "$work/$by" -DPHASOR_SOURCE="$source" -DBY="$by" \
    -DCOMPONENT="$component" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_BUILD_TYPE=Release -DPHASOR_CUDA=OFF \
    "${launcher[@]}" "${@:3}" >"$work/configure.log" 2>&1 || { cat "$work/configure.log"; exit 1; }
  if [[ $mode == --build ]]; then
    cmake --build "$work/$by" --target quickstart
    "$work/$by/quickstart" | grep "key at 2: -3.144039 1.919605 -0.339143 4.039197"
  else
    cmake --build "$work/$by" --target quickstart_objects
  fi
  # What a project installs is its own.
  ! grep -rqE "file\(INSTALL.*phasor" "$work/$by" --include=cmake_install.cmake ||
    { echo "$by: Phasor is installed with the project"; exit 1; }
}
consumer FetchContent client
consumer add_subdirectory inproc -DPHASOR_BUILD_RPC=OFF
echo "quickstart: compiles with Phasor as a part of the project"
