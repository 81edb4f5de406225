#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Has Envoy validate deploy/envoy: as it is, with each of its variants on, and broken on purpose,
# which Envoy must refuse. Exit status 77: Envoy is not installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tool=tests/repo/tool.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

$tool envoy --version
deploy/compose/certificate.sh "$work/tls"
cp "$work/tls/tls.crt" "$work/tls/ca.crt"
for file in deploy/envoy/*.yaml; do
  sed "s|/etc/envoy/phasor.pb|$PWD/deploy/envoy/phasor.pb|; s|/etc/envoy/|$work/|" "$file" >"$work/$(basename "$file")"
done

validate() { $tool envoy --mode validate -l warn -c "$1" 2>&1; }
# A warning is about what the next Envoy will not take.
accepted() {
  local said
  said=$(validate "$work/$1") || { echo "FAIL: $1 is not accepted: $said"; exit 1; }
  [[ $said != *'[warning]'* ]] || { echo "FAIL: $1: $said"; exit 1; }
  echo "PASS: $1"
}

accepted envoy.yaml
for variant in mtls tenants upstream-tls; do
  sed "s|# $variant: ||" "$work/envoy.yaml" >"$work/$variant.yaml"
  ! cmp -s "$work/envoy.yaml" "$work/$variant.yaml" || { echo "FAIL: envoy.yaml has no variant $variant"; exit 1; }
  accepted "$variant.yaml"
done
sed 's|num_retries: 2|num_retries: many|' "$work/envoy.yaml" >"$work/spoilt.yaml"
! validate "$work/spoilt.yaml" >/dev/null || { echo "FAIL: a spoilt file is accepted: the test shows nothing"; exit 1; }
