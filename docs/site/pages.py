# SPDX-License-Identifier: Apache-2.0
"""The pages of the repository as pages of the site: the same folders, so that links between pages hold. A link to a file that is
no page leads to a page that shows the file; one to a folder, to a list of it."""

import posixpath
import re

PAGES = ("*.md", "docs/*.md", "docs/adr/*.md", "client/**/*.md", "bench/**/*.md", "deploy/**/*.md", "tests/**/*.md")
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
LANGUAGES = {".h": "cpp", ".cc": "cpp", ".cu": "cpp", ".cuh": "cpp", ".py": "python", ".sh": "bash", ".proto": "proto", ".yaml": "yaml",
             ".json": "json", ".cmake": "cmake", ".txt": "text"}  # fmt: skip


class Broken(Exception):
    """A link to nothing."""


def names(root):
    return sorted({str(path.relative_to(root)) for pattern in PAGES for path in root.glob(pattern)
                   if not {"build", "site"} & set(path.relative_to(root).parts)})  # fmt: skip


def pages(root):
    """Path in the site -> Markdown, or bytes of an image."""
    found, wanted = {}, set()
    for name in names(root):
        found[name], targets = rewritten(root, name, (root / name).read_text(encoding="utf-8"))
        wanted |= targets
    for target in sorted(wanted):
        found.update(shown(root, target))
    return found


def rewritten(root, name, text):
    """The page with links to files of the site, and the files that are no pages."""
    targets = set()

    def link(match):
        path = match[2]
        if re.match(r"[a-z]+:", path):
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        if target.startswith("..") or not (root / target).exists():
            raise Broken(f"{name}: links to {path}, which does not exist")
        if target.endswith(".md"):
            return match[0]
        targets.add(target)
        page = site_path(root, target)
        return f"{match[1]}{posixpath.relpath(page, posixpath.dirname(name) or '.')}{match[4]}"

    return "\n".join(line if line.startswith("    ") else LINK.sub(link, line) for line in text.split("\n")), targets


def site_path(root, target):
    if (root / target).is_dir():
        return f"{target}/index.md"
    return target if target.endswith(".png") else f"files/{target}.md"


def shown(root, target):
    """The pages that stand for a file or a folder of the repository."""
    path, page = root / target, site_path(root, target)
    if path.is_dir():
        entries = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith((".", "__")))
        lines = [f"# {target}", ""]
        lines += [f"- [{title(root, path / entry)}]({entry})" if entry.endswith(".md") else f"- `{entry}`" for entry in entries]
        return {page: "\n".join(lines) + "\n"}
    if target.endswith(".png"):
        return {page: path.read_bytes()}
    language = LANGUAGES.get(path.suffix, "text")
    return {page: f"# {target}\n\n````{language}\n{path.read_text(encoding='utf-8')}\n````\n"}


def title(root, path):
    found = re.search(r"^# (.*)", path.read_text(encoding="utf-8"), re.M)
    return found[1] if found else str(path.relative_to(root))
