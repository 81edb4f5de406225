#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quickstart_installed.sh BUILD_DIR SOURCE_DIR CXX: installs into an empty folder, builds the
# quickstart against the installed package with find_package and with pkg-config, and runs it in
# process and against the installed server.
set -euo pipefail
build=$1 source=$2 cxx=$3

work=$(mktemp -d)
server=
finish() {
  [[ -z $server ]] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
cp -r "$source/client/quickstart" "$work/quickstart" # so that nothing of the source tree is found

# Ninja: what ./dev installs; a bare machine has no make.
cmake -G Ninja -S "$work/quickstart" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build"
"$work/build/quickstart" | tee "$work/here.txt"
grep -q -- "-0.544021  0.692634  0.937633" "$work/here.txt"
grep -q "key at 2: -3.144039 1.919605 -0.339143 4.039197" "$work/here.txt"

pc=$(find "$work/prefix" -name phasor.pc)
# shellcheck disable=SC2046  # words on purpose
"$cxx" "$work/quickstart/main.cc" -o "$work/by_pkg_config" \
  $(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --cflags --libs phasor)
"$work/by_pkg_config" | diff "$work/here.txt" -

socket=unix:$work/phasor.sock
"$work/prefix/bin/phasor-server" --listen "$socket" >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 100); do
  "$work/prefix/bin/phasor" health --server "$socket" >/dev/null 2>&1 && break
  kill -0 "$server" || { cat "$work/server.log"; exit 1; }
done
"$work/build/quickstart" "$socket" | diff "$work/here.txt" -
echo "quickstart: the same output in process, by pkg-config and from $socket"
