# SPDX-License-Identifier: Apache-2.0
"""The reference of the C++ client: a page of Markdown for each public header of client/. Comments
above a class become text; inside a class they stay beside what they are about."""

import re

PREFIX = "reference/cpp"
# A declaration begins at column 0 and ends at a line that begins with `}` or, on its own, ends with `;`.
KINDS = re.compile(r"^(?:template <.*>\s*)?(class|struct|enum class|concept)\s+(\w+)", re.S)


def pages(root):
    """Path in the site -> Markdown."""
    found, rows = {}, []
    for header in installed(root):
        text = (root / "client" / header).read_text(encoding="utf-8")
        page = f"{PREFIX}/{header.replace('/', '.').removesuffix('.h')}.md"
        about, declarations = split(text)
        found[page] = markdown(header, about, declarations)
        names = [name for name in dict.fromkeys(map(class_name, declarations)) if name]
        links = ", ".join(f"[{name}]({page.removeprefix('reference/')}#{name})" for name in names)
        rows.append(f"| [{header}]({page.removeprefix('reference/')}) | {links} | {about.split(chr(10) * 2)[0].replace(chr(10), ' ')} |")
    overview = ["# C++ client", "", "The public headers of `phasor::client`. [The C++ client](../docs/client.md) is the guide.", "",
                "| Header | Types | What it holds |", "|---|---|---|", *rows]  # fmt: skip
    found["reference/cpp.md"] = "\n".join(overview) + "\n"
    return found


def installed(root):
    """The public headers: those that cmake/PhasorHeaders.cmake starts from."""
    folder = root / "client"
    return [str(path.relative_to(folder)) for path in [*sorted(folder.glob("*.h")), *sorted(folder.glob("testing/*.h"))]]


def split(text):
    """(the comment of the file, [(comment, code)] of its declarations)."""
    lines = [line for line in text.split("\n") if "SPDX-License-Identifier" not in line]
    about = []
    while lines and lines[0].startswith("//"):
        about.append(lines.pop(0)[2:].removeprefix(" "))
    begin = max((n for n, line in enumerate(lines) if line.startswith("#include")), default=0)
    declarations, comment, code = [], [], []
    for line in lines[begin + 1 :]:
        if not code and (not line.strip() or re.match(r"namespace |\}|#|using namespace", line)):
            declarations += [(comment, [])] if comment and not line.strip() else []
            comment = []
        elif not code and line.startswith("//"):
            comment.append(line[2:].removeprefix(" "))
        else:
            code.append(line)
            joined = "\n".join(code)
            if joined.count("{") == joined.count("}") and re.search(r"[;}]\s*(//.*)?$", line):
                declarations.append((comment, code))
                comment, code = [], []
    return "\n".join(about), [("\n".join(c), public("\n".join(d))) for c, d in declarations if d and not _is_hidden(d)]


def _is_hidden(code):
    return re.match(r"(class|struct) \w+;$", code[0]) is not None or "internal" in code[0]


def class_name(declaration):
    found = KINDS.match(declaration[1])
    return found[2] if found else None


def public(code):
    """Without private members and without bodies of functions."""
    code = re.sub(r"\n+ private:\n.*?(?=\n\};)", "", code, flags=re.S)
    kept, depth, skipping = "", 0, None
    for character in code:
        if character == "{":
            depth += 1
            before = kept.rstrip()
            if skipping is None and re.search(r"(\)|\bconst|\boverride|\bnoexcept)$", before) and not before.endswith("requires"):
                skipping = depth
                kept = re.sub(r"\)\s*:\s[^;{}]*$", ")", before)
        if skipping is None:
            kept += character
        if character == "}":
            if skipping == depth:
                skipping = None
                kept += ";"
            depth -= 1
    return re.sub(r";\s*;", ";", kept)


def markdown(header, about, declarations):
    lines = [f"# {header}", "", *text_and_code(about), ""]
    functions = []
    for comment, code in merged(declarations):
        name = class_name((comment, code))
        if name is None:
            functions += [*(f"// {line}".rstrip() for line in comment.split("\n") if comment), code, ""]
            continue
        lines += [f"## {name} {{#{name}}}", "", *text_and_code(comment), "", "```cpp", code, "```", ""]
    if functions:
        lines += ["## Functions and constants", "", "```cpp", *functions[:-1], "```", ""]
    return "\n".join(lines)


def merged(declarations):
    """With the specialisations of a template in one block."""
    found = []
    for comment, code in declarations:
        name = class_name((comment, code))
        if name and found and not comment and class_name(found[-1]) == name:
            found[-1] = (found[-1][0], f"{found[-1][1]}\n{code}")
        else:
            found.append((comment, code))
    return found


def text_and_code(comment):
    """Lines of Markdown; what a comment indents is code."""
    lines = []
    for line in comment.split("\n"):
        is_code = line.startswith("  ") and (not lines or not lines[-1] or lines[-1].startswith("    "))
        prose = re.sub(r"\bdocs/[\w/.-]+\.md\b", r"[\g<0>](../../\g<0>)", line.replace("<", "&lt;").replace("*", "\\*"))
        lines.append("  " + line if is_code else prose)
    return lines
