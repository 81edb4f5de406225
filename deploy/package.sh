#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# package.sh BUILD_DIR [--wheel [--shared]]: makes the Debian packages of a release build (deploy/package.cmake),
# and a tarball of its programs that runs from any folder of any Linux with glibc 2.36 or newer; with
# --wheel, also the wheel of the Python package and its source distribution, which compiles for some
# minutes (deploy/wheel.sh, also for --shared). Prints their paths.
set -eu
build=$(realpath "$1")
cd "$(dirname "$0")/.."
out=$build/package
rm -rf "$out"
(cd "$build" && cpack -G DEB >"$build/package.log" 2>&1) || { cat "$build/package.log" >&2; exit 1; }
rm -rf "$out/_CPack_Packages"

# The programs, and the libraries that they need beside the C library. They find them in ../lib.
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
name=phasor-$version-linux-$(uname -m)
DESTDIR='' cmake --install "$build" --prefix "$out/$name" --component phasor_programs --strip >"$build/package.log"
mkdir -p "$out/$name/lib"
ldd "$out/$name/bin/phasor-server" "$out/$name/bin/phasor" | awk '$2 == "=>" && $3 ~ "^/" {print $3}' | sort -u |
  grep -Ev '/(libc|libm|libdl|librt|libpthread)\.so' |
  while read -r library; do cp -L "$library" "$out/$name/lib/"; done
cp LICENSE README.md deploy/systemd/phasor.service deploy/systemd/phasor.sysusers deploy/systemd/phasor.txtpb "$out/$name/"
# The same sources give the same file.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "$name" |
  gzip -9n >"$out/$name.tar.gz"
rm -rf "${out:?}/$name"
[ "${2:-}" != --wheel ] || deploy/wheel.sh "$out" ${3:+"$3"} >&2
ls "$out"/*
