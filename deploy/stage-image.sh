#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stage-image.sh BUILD_DIR OUT: the files that the image adds to its base: the stripped binary under both names, and
# the shared libraries it needs that Debian has no archive of.
set -eu
build=$1
out=$2
rm -rf "$out"
mkdir -p "$out/usr/local/bin" "$out/usr/local/lib"
strip --strip-all -o "$out/usr/local/bin/phasor" "$build/deploy/phasor-bundle"
ln -s phasor "$out/usr/local/bin/phasor-server"
# Part of every Debian base: the C and C++ run time.
ldd "$build/deploy/phasor-bundle" | awk '$2 == "=>" {print $3}' |
  grep -Ev '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' |
  while read -r library; do cp -L "$library" "$out/usr/local/lib/"; done
