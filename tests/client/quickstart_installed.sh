#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quickstart_installed.sh BUILD_DIR SOURCE_DIR CXX: installs into one folder, moves it to another, and builds the
# quickstart against what is there, with find_package and with pkg-config. Runs it in this process and against the
# installed server.
set -euo pipefail
build=$1 source=$2 cxx=$3

work=$(mktemp -d)
prefix=$work/moved
server=
finish() {
  [[ -z $server ]] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
die() { echo "$*" >&2 && exit 1; }

cmake --install "$build" --prefix "$work/installed" >"$work/install.log"
mv "$work/installed" "$prefix"
cp -r "$source/client/examples/quickstart" "$work/quickstart" # so that nothing of the source tree is found

# --- what was installed ---------------------------------------------------------------------------

[[ $(ls "$prefix/include") == phasor ]] || die "include/ must have phasor/ only: $(ls "$prefix/include")"
for path in "$build" "$source"/{client,kernels,proto,server}/ "$work/installed" /usr/local/cuda; do
  ! grep -rlF -- "$path" "$prefix" || die "the files above name $path"
done
# Every header compiles, and in one source with all others.
(cd "$prefix/include" && find phasor -name '*.h' | sort | sed 's/.*/#include <&>/') >"$work/headers.cc"
"$cxx" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I "$prefix/include" "$work/headers.cc"

# --- find_package ---------------------------------------------------------------------------------

# configure SOURCE BUILD [OPTION...]: Ninja, which is what ./dev installs; a bare machine has no make.
configure() {
  cmake -G Ninja -S "$1" -B "$2" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" "${@:3}" >"$work/configure.log" 2>&1
}
configure "$work/quickstart" "$work/build" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build"
"$work/build/quickstart" | tee "$work/here.txt"
grep -q -- "-0.544021  0.692634  0.937633" "$work/here.txt"
grep -q "key at 2: -3.144039 1.919605 -0.339143 4.039197" "$work/here.txt"

# components COMPONENT...: configures a program that asks for them and links both targets where they exist.
components() {
  rm -rf "$work/components"
  mkdir "$work/components"
  cat >"$work/components/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(components LANGUAGES CXX)
find_package(phasor REQUIRED COMPONENTS $*)
if(gRPC_FOUND)
  message(STATUS "gRPC is looked for")
endif()
foreach(target IN ITEMS phasor::client phasor::inproc)
  if(TARGET \${target})
    list(APPEND targets \${target})
  endif()
endforeach()
add_executable(components $work/quickstart/main.cc)
target_link_libraries(components PRIVATE \${targets})
EOF
  configure "$work/components" "$work/components/build"
}
components inproc || { cat "$work/configure.log"; exit 1; }
! grep "gRPC is looked for" "$work/configure.log" || die "component inproc needs gRPC"
! components client sever || die "an unknown component is accepted"
grep -q 'there is no component "sever", accepted are client and inproc' "$work/configure.log"
! components client inproc || die "a program may link phasor::client and phasor::inproc"
grep -q PHASOR_TRANSPORT "$work/configure.log"

# --- pkg-config -----------------------------------------------------------------------------------

pc=$(dirname "$(find "$prefix" -name phasor.pc)")
for package in phasor phasor-inproc; do
  # shellcheck disable=SC2046  # words on purpose
  "$cxx" "$work/quickstart/main.cc" -o "$work/by_$package" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs $package)
  "$work/by_$package" | diff "$work/here.txt" -
done
! "$work/by_phasor-inproc" dns:///nowhere:1 2>"$work/refused.txt" || die "phasor-inproc connects to a server"
grep -q "must be inproc:" "$work/refused.txt"

# --- a server -------------------------------------------------------------------------------------

socket=unix:$work/phasor.sock
"$prefix/bin/phasor-server" --listen "$socket" >"$work/server.log" 2>&1 &
server=$!
until "$prefix/bin/phasor" health --server "$socket" >/dev/null 2>&1; do
  kill -0 "$server" || { cat "$work/server.log"; exit 1; }
done
"$work/build/quickstart" "$socket" | diff "$work/here.txt" -
echo "quickstart: the same output in process, by pkg-config and from $socket"
