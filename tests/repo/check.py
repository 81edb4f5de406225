# SPDX-License-Identifier: Apache-2.0
"""Runs one rule over the repository: `check.py RULE`. Exit status 1 and one line per violation."""

import sys

import allowlist
import containers
import docs
import figures
import layering
import presets
import results
import rules
import tree

RULES = {
    "containers": containers.violations,
    "docs": docs.violations,
    "figures": figures.violations,
    "flags": rules.forbidden_flags,
    "guards": rules.include_guards,
    "grpc-servers": rules.bare_grpc_servers,
    "layering": layering.violations,
    "presets": presets.violations,
    "results": results.violations,
    "size": lambda files: rules.long_files(files, allowlist.LONG_FILES),
    "sleeps": lambda files: rules.fixed_sleeps(files, allowlist.SLEEPS),
    "spdx": rules.missing_spdx,
    "symmetry": lambda files: rules.untested_sources(files, allowlist.UNTESTED_SOURCES),
    "test-names": rules.empty_test_names,
    "workflows": rules.loose_workflows,
}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in RULES:
        sys.exit(f"usage: check.py {'|'.join(RULES)}")
    files = tree.load()
    found = RULES[sys.argv[1]](files)
    print("\n".join(found) or f"{sys.argv[1]}: {len(files)} files, nothing to complain about")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
