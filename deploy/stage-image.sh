#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stage-image.sh BUILD_DIR OUT: collects the files that the image adds to its base: the stripped
# binary under both names, the shared libraries that it needs and that Debian has no archive of, and
# its bill of materials (deploy/sbom.py). And the descriptors of its services, for proxies.
set -eu
build=$1
out=$2
rm -rf "$out"
mkdir -p "$out/usr/local/bin" "$out/usr/local/lib"
strip --strip-all -o "$out/usr/local/bin/phasor" "$build/deploy/phasor-bundle"
ln -s phasor "$out/usr/local/bin/phasor-server"
# The C library is in every base.
ldd "$build/deploy/phasor-bundle" | awk '$2 == "=>" {print $3}' |
  grep -Ev '/(libc|libm|libdl|librt|libpthread)\.so' |
  while read -r library; do cp -L "$library" "$out/usr/local/lib/"; done
mkdir -p "$out/usr/share/phasor"
cp "$(dirname "$0")/envoy/phasor.pb" "$out/usr/share/phasor/"
# The same sources give the same document.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH
python3 "$(dirname "$0")/sbom.py" "$build" "$out/usr/local/bin/phasor" "$out/usr/share/doc/phasor"
