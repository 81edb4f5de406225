#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs buildah with its storage in build/image, so that `rm -r build` removes everything it makes.
cd "$(dirname "$0")/.." || exit 1
mkdir -p build/image
printf '{"default": [{"type": "insecureAcceptAnything"}]}\n' >build/image/policy.json
printf 'unqualified-search-registries = ["docker.io"]\n' >build/image/registries.conf
command=$1
shift
case $command in
  build | from | commit | pull) set -- --signature-policy "$PWD/build/image/policy.json" "$@" ;;
esac
exec buildah --storage-driver vfs --root "$PWD/build/image/storage" --runroot "$PWD/build/image/run" \
  --registries-conf "$PWD/build/image/registries.conf" "$command" "$@"
