#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# certificate.sh [DIRECTORY]: makes a self-signed certificate to try compose.yaml, by default in
# deploy/compose/tls. All users of this host can read its key, also Envoy's. For other purposes use
# a certificate from your own authority.
set -eu
directory=${1:-$(dirname "$0")/tls}
mkdir -p "$directory"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=phasor \
  -addext subjectAltName=DNS:phasor,DNS:localhost,IP:127.0.0.1 \
  -keyout "$directory/tls.key" -out "$directory/tls.crt" 2>/dev/null
chmod 644 "$directory/tls.key"
echo "wrote $directory/tls.crt and tls.key"
