#!/usr/bin/env python3
"""Checks what a reader should be able to rely on in every file of the repository.

- Each `.rs` file opens with `//!`, and has at most MOST_LINES lines before its tests.
- No `#[should_panic]`, `todo!`, `unimplemented!` or `dbg!`, and no `#[ignore]` without a written reason.
- Relative links in `.md` files lead to a file that is there, and to a heading that is there.
- What ARCHITECTURE.md and CONTRIBUTING.md name in backticks (files, types, functions) is there.
- In the crates that write a data directory, files and directories are made by `catalog::writable_file` and
  `catalog::make_directories` alone, which give them their modes.
- No path of somebody's machine.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES = 600
BANNED = {
    re.compile(r"#\[should_panic"): "#[should_panic] hides which line panics: assert on the error",
    re.compile(r"\b(todo|unimplemented)!"): "unfinished code",
    re.compile(r"\bdbg!"): "left over from debugging",
    re.compile(r"#\[ignore\]"): '#[ignore] without a reason: write #[ignore = "why"]',
}
WRITING_CRATES = ("catalog", "store", "ingest")
MAKES_FILES = re.compile(r"\bcreate_dir(_all)?\(|\bFile::create|\bFile::options\(|\bOpenOptions::new\(|\bDirBuilder::new\(")
MACHINE_PATH = re.compile(r"(?<![\w.~}*-])/(work|root|home|Users)/[\w.]")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`([^`\n]+)`")
# The maps of the repository.
MAPS = {"ARCHITECTURE.md", "CONTRIBUTING.md"}
# What they name: words of code, as `Session::plan` and `check()`, and paths, as `http/tap` and `plan.rs`.
IN_CODE = re.compile(r"[A-Za-z_]\w*(::\w+)*(\(\))?")
IN_TREE = re.compile(r"[\w.-]+(/[\w.-]+)*/?")
# Names of libraries that the map says are not used.
LIBRARIES = {"HttpConnector"}
TESTS_BEGIN = re.compile(r"^#\[cfg\(test\)\]\n(?:#\[.*\n)*mod \w+ \{", re.MULTILINE)
TEXT_SUFFIXES = {".rs", ".md", ".py", ".toml", ".sql", ".json", ".yml", ".yaml", ".html", ".js", ".css", ".proto", ""}


def files() -> Iterator[Path]:
    """The files that are under version control or could be: not the ignored ones."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    for name in listing.splitlines():
        path = ROOT / name
        if path.is_file() and path.suffix in TEXT_SUFFIXES:
            yield path


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def check_rust(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Objections to a Rust file, each with its line."""
    if not text.startswith("//!"):
        yield 1, "does not open with //! saying what it is for"
    tests = TESTS_BEGIN.search(text)
    lines = text.count("\n", 0, tests.start()) if tests else text.count("\n")
    is_test = "tests" in path.parts or path.stem == "tests"
    if lines > MOST_LINES and not is_test:
        yield MOST_LINES, f"has {lines} lines without its tests, more than {MOST_LINES}"
    for pattern, objection in BANNED.items():
        for match in pattern.finditer(text):
            yield line_of(text, match.start()), objection
    writes = any(f"crates/{crate}/src/" in path.as_posix() for crate in WRITING_CRATES)
    if not writes or is_test or path.name == "access.rs":
        return
    for match in MAKES_FILES.finditer(text[: tests.start()] if tests else text):
        yield line_of(text, match.start()), "makes a file or directory of whatever mode: see crates/catalog/src/access.rs"


def anchors(text: str) -> set[str]:
    """The names by which a page's headings can be linked to, as code forges make them."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(FENCE.sub("", text)))
    return {heading.replace(" ", "-") for heading in plain}


def check_links(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Links of a page that lead nowhere, each with its line."""
    for match in LINK.finditer(text):
        target, _, anchor = match.group(1).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        page = (path.parent / target).resolve() if target else path
        if not page.exists():
            yield line_of(text, match.start()), f"links to {target}, which is not there"
        elif anchor and page.suffix == ".md" and anchor not in anchors(page.read_text(encoding="utf-8")):
            yield line_of(text, match.start()), f"links to #{anchor}, a heading that is not there"


def check_map(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Files, types and functions that the map of the code names and that are not there, each with its line."""
    paths = [other.relative_to(ROOT).as_posix() for other in files()]
    code = "\n".join(other.read_text(encoding="utf-8", errors="replace") for other in files() if other.suffix in {".rs", ".py", ".toml", ""})
    words = set(re.findall(r"\w+", code))
    for match in NAMED.finditer(FENCE.sub(lambda block: "\n" * block.group(0).count("\n"), text)):
        name = match.group(1)
        if IN_CODE.fullmatch(name):
            is_there = set(re.findall(r"\w+", name)) <= words | LIBRARIES
        elif IN_TREE.fullmatch(name) and re.search(r"[./]", name):
            within = f"/{name.strip('/')}"
            in_crate = "/{}/src/{}".format(*name.strip("/").split("/", 1)) if "/" in name.strip("/") else within
            is_there = any(end in f"/{other}" for other in paths for end in (within, in_crate)) or name in code
        else:
            continue
        if not is_there:
            yield line_of(text, match.start()), f"names {name}, which is not there"


def check(path: Path) -> Iterator[tuple[int, str]]:
    """All objections to one file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    for match in MACHINE_PATH.finditer(text):
        yield line_of(text, match.start()), f"names a path of one machine: {match.group(0)}..."
    if path.suffix == ".rs":
        yield from check_rust(path.relative_to(ROOT), text)
    elif path.suffix == ".md":
        yield from check_links(path, text)
        if path.name in MAPS and path.parent == ROOT:
            yield from check_map(path, text)


def main() -> int:
    checked, objections = 0, 0
    for path in files():
        checked += 1
        for line, objection in check(path):
            objections += 1
            print(f"{path.relative_to(ROOT)}:{line}: {objection}", file=sys.stderr)
    print(f"tidy: {checked} files, {objections} objections")
    return 1 if objections else 0


if __name__ == "__main__":
    sys.exit(main())
