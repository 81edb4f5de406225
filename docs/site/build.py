# SPDX-License-Identifier: Apache-2.0
"""Builds the documentation site: `build.py OUT`. OUT/pages is what mkdocs reads, OUT/site what a browser reads. A broken link is
an error. Needs protoc and requirements.txt."""

import logging
import pathlib
import shutil
import sys

import headers
import pages
import protos
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Heading of the navigation -> pages. Pages that are named nowhere come last.
SECTIONS = {
    "Use it": ("choosing", "presets", "conventions", "python", "client", "oip", "rest", "shared-memory", "cached-keys", "move-keys", "check-cache",
               "paged-cache", "tables-and-biases", "errors"),
    "Run it": ("configuration", "operations", "security", "reliability", "metrics", "tracing", "top", "runbooks", "capacity", "packages", "images", "kubernetes",
               "replicas"),
    "How and why": ("numerics", "performance", "benchmarks", "measured", "cuda", "newer-grpc", "compatibility"),
}  # fmt: skip


def navigation(found):
    left = [name for name in found if name.endswith(".md") and not name.startswith(("files/", "reference/", "docs/adr/"))]
    left = [name for name in left if not name.endswith("/index.md")]

    def take(name):
        if name in left:
            left.remove(name)
            return [name]
        return []

    nav = [{"Start here": take("README.md")[0]}]
    nav += [{head: [page for name in names for page in take(f"docs/{name}.md")]} for head, names in SECTIONS.items()]
    api = sorted(name for name in found if name.startswith("reference/phasor."))
    cpp = sorted(name for name in found if name.startswith("reference/cpp/"))
    nav.append({"Reference": [{"Protocol": ["reference/protocol.md", *api]}, {"C++ client": ["reference/cpp.md", *cpp]}]})
    nav.append({"Decisions": sorted((name for name in found if name.startswith("docs/adr/")), key=lambda name: (name != "docs/adr/README.md", name))})
    nav.append({"Change it": [page for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/adding-an-op.md") for page in take(name)]})
    nav.append({"More": left})
    return nav


def write(folder, found):
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in found.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


class Complaints(logging.Handler):
    """What mkdocs warns about."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: build.py OUT")
    out = pathlib.Path(sys.argv[1]).resolve()
    try:
        found = {**pages.pages(ROOT), **protos.pages(ROOT), **headers.pages(ROOT)}
    except pages.Broken as broken:
        sys.exit(str(broken))
    write(out / "pages", found)
    (out / "pages/site.css").write_bytes((ROOT / "docs/site/site.css").read_bytes())
    settings = yaml.safe_load((ROOT / "docs/site/mkdocs.yaml").read_text(encoding="utf-8"))
    settings |= {"docs_dir": str(out / "pages"), "site_dir": str(out / "site"), "nav": navigation(found)}
    (out / "mkdocs.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    complaints = Complaints()
    logging.getLogger("mkdocs").addHandler(complaints)
    build(load_config(str(out / "mkdocs.yaml")))
    if complaints.lines:
        sys.exit("\n".join(complaints.lines))
    print(f"{len(found)} pages: {out}/site/index.html")


if __name__ == "__main__":
    main()
