#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pic-libraries.sh OUT: compiles Abseil and protobuf from Debian's sources as position-independent archives in OUT,
# because the archives of Debian's packages cannot be part of a shared object. (Those of gRPC, upb, c-ares and OpenSSL
# can, and re2 is not needed without xDS.) The versions are those of the installed
# packages; apt checks the sources against Debian's signed index. Does nothing if OUT has these versions. Exit status 77:
# the sources cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(realpath -m "$1")
skip() { echo "SKIP: $*" >&2; exit 77; }

versions=$(dpkg-query -W -f '${source:Package}=${source:Version}\n' libabsl-dev libprotobuf-dev) ||
  skip "no Debian packages of Abseil and protobuf here"
if [[ $versions == "$(cat "$out/versions" 2>/dev/null)" ]]; then exit 0; fi
command -v dpkg-source >/dev/null || skip "dpkg-dev is not installed; ./dev test installs it"

rm -rf "$out"
mkdir -p "$out/apt/lists/partial" "$out/apt/archives/partial" "$out/sources"
# The repositories that this machine has its packages from.
# shellcheck disable=SC2016  # apt expands these
apt-get indextargets --format '$(ORIGIN) [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT)' \
  'Created-By: Packages' | sed -n 's/^Debian /deb-src /p' | sort -u >"$out/apt/sources.list"
apt=(-qq -o "Dir::Etc::SourceList=$out/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$out/apt/lists"
  -o "Dir::Cache=$out/apt" -o APT::Sandbox::User="$(id -un)")
# shellcheck disable=SC2086  # one argument per package
(cd "$out/sources" && apt-get "${apt[@]}" update && apt-get "${apt[@]}" source $versions) </dev/null >"$out/apt.log" 2>&1 ||
  { tail -n 3 "$out/apt.log" >&2; skip "no sources of ${versions//$'\n'/ } (offline?)"; }

# compile SOURCE TARGET OPTION...: with Debian's optimisation; unused functions can be left out.
compile() {
  local source=$1 target=$2
  shift 2
  cmake -G Ninja -S "$out"/sources/"$source"-*/ -B "$out/$source" -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_STANDARD=17 \
    -DCMAKE_CXX_FLAGS="-O2 -ffunction-sections -fdata-sections" -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF "$@" &&
    cmake --build "$out/$source" --target "$target" &&
    find "$out/$source" -name '*.a' -exec cp -t "$out" {} +
}
{
  compile abseil all &&
    compile protobuf libprotobuf -Dprotobuf_BUILD_TESTS=OFF -Dprotobuf_BUILD_PROTOC_BINARIES=OFF -Dprotobuf_WITH_ZLIB=ON
} >"$out/build.log" 2>&1 || { tail -n 40 "$out/build.log" >&2; exit 1; }
rm -rf "$out/apt" "$out/sources" "$out/abseil" "$out/protobuf"
echo "$versions" >"$out/versions"
