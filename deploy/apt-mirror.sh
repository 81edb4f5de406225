#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the mirror that this machine's apt uses for Debian 12; prints nothing if there is none.
# shellcheck disable=SC2016  # apt expands these
apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
  awk '$2 == "bookworm" && $3 == "main" {print $1; exit}'
