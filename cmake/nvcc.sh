#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nvcc.sh FOLDER COMMAND...: runs COMMAND, a call of nvcc. FOLDER gets the machine code for each architecture and ptxas.log, what
# ptxas said of it, for the test that reads them. A compiler cache does not restore the machine code.
folder=$1
shift
rm -rf "$folder" && mkdir -p "$folder" || exit 1
"$@" -Xptxas -v --keep --keep-dir "$folder" 2>"$folder/ptxas.log"
status=$?
find "$folder" -type f ! -name '*.cubin' ! -name ptxas.log -delete
if [ $status != 0 ]; then cat "$folder/ptxas.log" >&2; fi
exit $status
