#!/usr/bin/env python3
"""Checks the packages that the program is built from: their licences, where they come from, and that they are there once.

- Every licence has a choice of terms that are all in LICENCES.
- Every package comes from the one registry that cargo takes packages from by itself, or is ours.
- No package has several incompatible versions but for those in SEVERAL, which may have as many as stand there, and none that stands
  there has fewer.

This is what `cargo deny check licenses sources bans` does. It is a script because `cargo metadata` says everything that it needs,
while `cargo deny` would have to be compiled for ten minutes on every machine that runs `make lint`. check_advisories.py beside it knows
security advisories.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

# Terms under which a program may be passed on that is under the Apache License 2.0, and why. What is linked into it must not bring the
# GPL, LGPL, AGPL, MPL or SSPL along.
NOTICE_IN_TEXTS = "permissive: its notice goes along with the program"
NO_CONDITIONS = "asks for nothing"
LICENCES = {
    "0BSD": NO_CONDITIONS,
    "Apache-2.0": "Meridian's own",
    "BSD-2-Clause": NOTICE_IN_TEXTS,
    "BSD-3-Clause": NOTICE_IN_TEXTS,
    "BSL-1.0": "permissive: nothing goes along with a compiled program",
    "CC0-1.0": NO_CONDITIONS,
    "ISC": NOTICE_IN_TEXTS,
    "MIT": NOTICE_IN_TEXTS,
    "MIT-0": NO_CONDITIONS,
    "Unicode-3.0": "permissive: its notice goes along with Unicode's tables",
    "Unlicense": NO_CONDITIONS,
    "Zlib": "permissive: only changed sources have to say that they are",
    "bzip2-1.0.6": "permissive: only changed sources have to say that they are",
}
# Of what the compiler adds to a program.
EXCEPTIONS = {"LLVM-exception"}
# How cargo names a registry, where it does not name a repository, a folder or an archive.
REGISTRY = "registry+"
# Packages that others make us have several times, and how often. A smaller number is an entry to correct here.
SEVERAL = {
    "base64": 2, "bit-vec": 2, "bitflags": 2, "block-buffer": 2, "cpufeatures": 2, "crypto-common": 2, "digest": 2, "fallible-iterator": 2, "fastlanes": 2, "foldhash": 2,
    "getrandom": 3, "hashbrown": 4, "itertools": 3, "miniz_oxide": 2, "num-bigint": 2, "phf": 2, "phf_shared": 2, "rand": 2,
    "rand_core": 3, "rand_xoshiro": 2, "sha2": 2, "shlex": 2, "syn": 3, "synstructure": 2, "toml_datetime": 2, "toml_edit": 2, "winnow": 2, "zstd": 2,
    "zstd-safe": 2,
}  # fmt: skip
WORDS = re.compile(r"[()/]|[\w.+-]+")


def metadata() -> dict:
    """What cargo knows of the packages for Linux."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]
    root = Path(__file__).resolve().parent.parent
    return json.loads(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout)


class Licence:
    """An expression of SPDX's, read from its beginning: OR binds less than AND, and an old `/` is an OR."""

    def __init__(self, text: str) -> None:
        self.words = [*WORDS.findall(text), ""]
        self.at = 0

    def next(self) -> str:
        """The next word; nothing at the end and from there on."""
        word = self.words[self.at]
        self.at = min(self.at + 1, len(self.words) - 1)
        return word

    def is_good(self) -> bool:
        """Whether the whole of it is an expression that leaves a choice of known terms."""
        good = self.any_of()
        return good and self.words[self.at] == ""

    def any_of(self) -> bool:
        """Terms of which one counts."""
        good = self.all_of()
        while self.words[self.at] in ("OR", "/"):
            self.next()
            good = self.all_of() or good
        return good

    def all_of(self) -> bool:
        """Terms that all count."""
        good = self.term()
        while self.words[self.at] == "AND":
            self.next()
            good = self.term() and good
        return good

    def term(self) -> bool:
        """A licence, perhaps with an exception, or an expression in parentheses."""
        word = self.next()
        if word == "(":
            good = self.any_of()
            return self.next() == ")" and good
        good = word in LICENCES
        if self.words[self.at] == "WITH":
            self.next()
            good = self.next() in EXCEPTIONS and good
        return good


def compatible_range(version: str) -> str:
    """The versions that cargo takes for one another: 1.4.2 is 1, 0.9.3 is 0.9."""
    major, minor, *_ = version.split(".")
    return f"0.{minor}" if major == "0" else major


def complaints(packages: list[dict]) -> Iterator[str]:
    """What is wrong with packages of others."""
    versions: dict[str, set[str]] = defaultdict(set)
    usual, _ = Counter(package["source"] for package in packages).most_common(1)[0]
    for package in packages:
        name, licence = f"{package['name']} {package['version']}", package["license"] or ""
        versions[package["name"]].add(compatible_range(package["version"]))
        if not Licence(licence).is_good():
            yield f"{name} is under {licence or 'no licence that it names'}: look whether it may be used, and add its terms or replace it"
        if not package["source"].startswith(REGISTRY) or package["source"] != usual:
            yield f"{name} comes from {package['source']}, not from where the others do"
    for name in sorted(versions.keys() | SEVERAL.keys()):
        found, expected = len(versions[name]), SEVERAL.get(name, 1)
        if found != expected:
            yield f"{name} is there {found} times ({', '.join(sorted(versions[name]))}), not {expected}"


def self_check() -> None:
    """The check can fail."""
    for text, good in [
        ("MIT", True), ("MIT/Apache-2.0", True), ("GPL-3.0 OR MIT", True), ("GPL-3.0 AND MIT", False), ("", False), ("MIT MIT", False),
        ("(MIT OR GPL-3.0) AND ISC", True), ("(GPL-3.0 OR LGPL-3.0) AND ISC", False), ("Apache-2.0 WITH LLVM-exception", True),
        ("Apache-2.0 WITH other", False), ("(MIT", False),
    ]:  # fmt: skip
        assert Licence(text).is_good() == good, text


def main() -> int:
    self_check()
    packages = [package for package in metadata()["packages"] if package["source"] is not None]
    found = list(complaints(packages))
    for complaint in found:
        print(f"packages: {complaint}", file=sys.stderr)
    if not found:
        print(f"packages: {len(packages)} of others, under known licences, {len(SEVERAL)} of them in several versions")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
