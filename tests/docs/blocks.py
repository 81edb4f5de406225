# SPDX-License-Identifier: Apache-2.0
"""The code blocks of a Markdown page: which hold commands, which hold what they print, and what an author says about them.

A block is fenced, or indented by four spaces after an empty line. It holds commands when its first word that is no comment is
one of PROGRAMS. Text that follows such a block without prose between is its expected output. An author says more in comments
on the lines before a block:

    <!-- not run: needs docker -->       the block is not run, and why
    <!-- first: COMMAND -->              runs before the block: makes a file that it reads, or starts the server that it calls
    <!-- exit status: 2 -->              of the last command of the block; otherwise 0
    <!-- numbers vary -->                before an output: its numbers may differ
"""

import dataclasses
import re

PROGRAMS = ("./dev", "build/release/", "curl", "docker", "git", "grpcurl", "helm", "kubectl", "openssl", "perf_analyzer", "phasor",
            "phasor-server", "pip", "podman", "python", "python3", "cmake", "sudo", "systemctl", "tar")  # fmt: skip
SHELLS = ("sh", "bash", "shell", "console")
FENCE = re.compile(r"^( {0,3})(```+|~~~+)\s*([\w+-]*)[^`]*$")
COMMENT = re.compile(r"^<!--\s*(not run|first|exit status|numbers vary)\s*:?\s*(.*?)\s*-->$")


@dataclasses.dataclass
class Block:
    line: int  # of its first line of text
    text: str
    language: str = ""  # of a fence
    adjacent: bool = False  # nothing but empty lines and comments since the block before
    marks: dict = dataclasses.field(default_factory=dict)  # "first" -> [commands], others -> text

    def is_commands(self):
        return self.language in SHELLS or (not self.language and is_command(self.first_line()))

    def is_output(self):
        return self.adjacent and self.language in ("", "text") and not self.is_commands()

    def first_line(self):
        return next((line for line in self.text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")


def is_command(line):
    words = line.removeprefix("$ ").split()
    while words and re.match(r"^[A-Z_]+=", words[0]):  # VARIABLE=value before the program
        words = words[1:]
    if not words or (words[0] == "phasor" and re.match(r"\d", (words + ["0"])[1])):  # "phasor 0.1.0": an output
        return False
    return any(words[0] == program or (program.endswith("/") and words[0].startswith(program)) for program in PROGRAMS)


def blocks(text):
    """The blocks of a page, in order."""
    lines = text.split("\n")
    found, marks, adjacent, at = [], {}, False, 0
    while at < len(lines):
        line, fence = lines[at], FENCE.match(lines[at])
        comment = COMMENT.match(line.strip())
        if comment:
            if comment[1] == "first":
                marks.setdefault("first", []).append(comment[2])
            else:
                marks[comment[1]] = comment[2]
            at += 1
            continue
        if not line.strip():
            at += 1
            continue
        if fence:
            end = next((n for n in range(at + 1, len(lines)) if lines[n].strip().startswith(fence[2])), len(lines))
            body, after, language, begin = lines[at + 1 : end], end + 1, fence[3].lower(), at + 2
        elif line.startswith("    ") and (at == 0 or not lines[at - 1].strip() or COMMENT.match(lines[at - 1].strip())):
            after = at
            while after < len(lines) and (lines[after].startswith("    ") or not lines[after].strip()):
                after += 1
            while not lines[after - 1].strip():
                after -= 1
            body, language, begin = [text[4:] for text in lines[at:after]], "", at + 1
        else:
            marks, adjacent, at = {}, False, at + 1
            continue
        found.append(Block(begin, "\n".join(body), language, adjacent, marks))
        marks, adjacent, at = {}, True, after
    return found


def console(block):
    """[(command, output or None)] of a block whose commands begin with `$ `; None if it is no such block."""
    if not block.first_line().startswith("$ "):
        return None
    steps = []
    for line in block.text.split("\n"):
        if line.startswith("$ "):
            steps.append([line[2:], []])
        elif steps and steps[-1][0].endswith("\\"):
            steps[-1][0] += "\n" + line.removeprefix("> ")
        elif steps:
            steps[-1][1].append(line)
    return [(command, "\n".join(output) if output else None) for command, output in steps]


def statements(text, is_complete):
    """The statements of a shell block, by what `is_complete` says of lines put together."""
    found, pending = [], ""
    for line in text.split("\n"):
        if not pending and (not line.strip() or line.lstrip().startswith("#")):
            continue
        pending += ("\n" if pending else "") + line
        if not pending.endswith("\\") and is_complete(pending):
            found.append(pending)
            pending = ""
    return found + ([pending] if pending else [])


def without_comments(command):
    return re.sub(r"(^|\s)#.*", "", command)


PLACEHOLDER = re.compile(r"(?<![\w$({.-])(?!(?:DNS|IP|URI):)([A-Z][A-Z_]+)(?![\w=(-])")


def placeholder(command):
    """A word in capitals that stands for something of the reader's, such as HOST or MODEL; or `...`; or None."""
    command = without_comments(command)
    found = PLACEHOLDER.search(re.sub(r"'[^']*'", "''", command))
    return found[1] if found else "..." if re.search(r"(?<![\w.])\.\.\.(?![\w.])", command) else None


# With its unit: "25us" may be "1.2ms" another time.
NUMBER = r"(?<![A-Za-z0-9.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?:[A-Za-zµ]{1,2}\b)?"


def differs(expected, actual, numbers_vary):
    """What of the expected output the actual one lacks, or None. Words are compared in order, spaces do not count; `...` stands
    for any words of a line, and on a line of its own for any lines."""
    lines = [line.split() for line in actual.split("\n") if line.strip()]
    at, skipping = 0, False
    for line in (line.split() for line in expected.split("\n") if line.strip()):
        if line == ["..."]:
            skipping = True
            continue
        while skipping and at < len(lines) and not _matches(line, lines[at], numbers_vary):
            at += 1
        skipping = False
        if at == len(lines):
            return f"the page shows `{' '.join(line)}`, the output has ended"
        if not _matches(line, lines[at], numbers_vary):
            return f"the page shows `{' '.join(line)}`, the output has `{' '.join(lines[at])}`"
        at += 1
    if at < len(lines) and not skipping:
        return f"the output goes on with `{' '.join(lines[at])}`"
    return None


def _matches(expected, actual, numbers_vary):
    pattern = ""
    for piece in re.split(rf"({NUMBER}|\.\.\.)" if numbers_vary else r"(\.\.\.)", " ".join(expected)):
        is_number = numbers_vary and re.fullmatch(NUMBER, piece)
        pattern += ".*" if piece == "..." else NUMBER if is_number else re.escape(piece)
    return re.fullmatch(pattern, " ".join(actual)) is not None
