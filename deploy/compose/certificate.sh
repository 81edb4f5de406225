#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# certificate.sh [DIRECTORY]: a self-signed certificate for trying compose.yaml, in deploy/compose/tls. Its key may be read by
# everybody on this host, Envoy's user too: for anything else bring a certificate of your own authority.
set -eu
directory=${1:-$(dirname "$0")/tls}
mkdir -p "$directory"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=phasor \
  -addext subjectAltName=DNS:phasor,DNS:localhost,IP:127.0.0.1 \
  -keyout "$directory/tls.key" -out "$directory/tls.crt" 2>/dev/null
chmod 644 "$directory/tls.key"
echo "wrote $directory/tls.crt and tls.key"
