#!/usr/bin/env python3
"""Checks the packages of Cargo.lock against security advisories, where a list of them is at hand.

    scripts/check_advisories.py [LIST]            checks against the list, by default MERIDIAN_ADVISORIES or ../shared/data/advisories.tsv
    scripts/check_advisories.py --make DATABASE   prints such a list, of a clone of https://github.com/rustsec/advisory-db

The list is a state of RustSec's database, so that the check needs no network and says the same until somebody makes the list anew. It is
not under version control: the database changes daily. Without a list nothing is checked, and that is said.

- No package has a version that an advisory of the list concerns on Linux, but for those in ACCEPTED.
- Each entry of ACCEPTED concerns a package that is there, and what its reason rests on is so.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
USUAL_LIST = ROOT.parent / "shared" / "data" / "advisories.tsv"
COLUMNS = ["id", "package", "kind", "patched", "unaffected", "systems"]
# Between ranges of versions, of which one has to be met.
OR = " || "


@dataclass(frozen=True)
class Accepted:
    """Why an advisory is no reason to change anything."""

    reason: str
    # What no source of the program may contain, as the reason rests on it.
    absent: str | None = None


# quick-xml 0.38 is slow or takes much memory in these ways alone. try_get_attribute, which we call, does not check for duplicates.
NO_SUCH_XML = r"\bNsReader\b|\bNamespaceResolver\b|\.attributes\(|\bhtml_attributes\("
ACCEPTED = {
    "RUSTSEC-2024-0436": Accepted("paste, unmaintained: a macro, which runs when Vortex's packages are compiled and not in the program"),
    "RUSTSEC-2025-0141": Accepted("bincode, unmaintained: cdshealpix needs it for files of its own, which Meridian neither reads nor writes"),
    "RUSTSEC-2026-0194": Accepted("quick-xml: the check for duplicate attributes takes quadratic time; it is never called", NO_SUCH_XML),
    "RUSTSEC-2026-0195": Accepted("quick-xml: namespaces take memory without limit; they are never resolved", NO_SUCH_XML),
}

Version = tuple[tuple[int, int, int], tuple[tuple[int, int, str], ...]]
COMPARATOR = re.compile(r"(>=|<=|>|<|=|\^|~)?\s*(\d+)(?:\.(\d+|\*))?(?:\.(\d+|\*))?(?:-([\w.-]+))?(?:\+[\w.-]+)?$")
# After all versions before a release: the release itself.
RELEASE = ((2, 0, ""),)


def version_of(numbers: Iterable[int], before_release: str | None) -> Version:
    """A version that can be compared, in the order of Semantic Versioning 2.0.0, section 11."""
    major, minor, patch = numbers
    if not before_release:
        return (major, minor, patch), RELEASE
    words = before_release.split(".")
    return (major, minor, patch), tuple((0, int(word), "") if word.isdigit() else (1, 0, word) for word in words)


def parse_version(text: str) -> Version:
    return parse_comparator("=" + text)[1]


def parse_comparator(text: str) -> tuple[str, Version, int]:
    """An operator, a version, and how many of its numbers are given."""
    match = COMPARATOR.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no range of versions")
    given = [int(number) for number in match.group(2, 3, 4) if number not in (None, "*")]
    numbers = [*given, 0, 0, 0][:3]
    return match.group(1) or "^", version_of(numbers, match.group(5)), len(given)


def next_incompatible(operator: str, version: Version, given: int) -> Version:
    """The least version that `^`, `~` or an incomplete `=` excludes, without those before its release."""
    numbers = version[0]
    if operator == "^":
        kept = next((place for place in range(given) if numbers[place] > 0), given - 1)
    else:
        kept = min(given - 1, 1) if operator == "~" else given - 1
    return (*numbers[:kept], numbers[kept] + 1, *[0] * (2 - kept)), ()


def meets(version: Version, comparator: str) -> bool:
    """Whether a version meets one comparator, as cargo reads it."""
    operator, bound, given = parse_comparator(comparator)
    match operator:
        case ">=":
            return version >= bound
        case ">":
            return version > bound
        case "<":
            return version < bound
        case "<=":
            return version <= bound
        case "=" if given == 3:
            return version == bound
        case _:
            return bound <= version < next_incompatible(operator, bound, given)


def is_in(version: Version, ranges: str) -> bool:
    """Whether a version is in one of several ranges, each of which may have several comparators."""
    return any(all(meets(version, comparator) for comparator in one.split(",")) for one in ranges.split(OR) if one)


def is_concerned(row: dict[str, str], version: Version) -> bool:
    systems = row["systems"].split(",") if row["systems"] else ["linux"]
    return "linux" in systems and not is_in(version, row["patched"]) and not is_in(version, row["unaffected"])


def read_list(text: str) -> tuple[str, list[dict[str, str]]]:
    """What a list says of itself, and its advisories."""
    heading, *lines = text.splitlines()
    rows = [line.split("\t") for line in lines]
    if not heading.startswith("# ") or not rows or rows[0] != COLUMNS:
        raise ValueError("this is no list of advisories: make one with --make")
    return heading.removeprefix("# "), [dict(zip(COLUMNS, row, strict=True)) for row in rows[1:]]


def complaints(rows: list[dict[str, str]], packages: list[dict], accepted: dict[str, Accepted], sources: str) -> Iterator[str]:
    """What is wrong with packages, each with `name` and `version`, of a program with these sources."""
    versions: dict[str, list[str]] = {}
    for package in packages:
        versions.setdefault(package["name"], []).append(package["version"])
    concerned = set()
    for row in rows:
        for version in versions.get(row["package"], []):
            if not is_concerned(row, parse_version(version)):
                continue
            concerned.add(row["id"])
            if row["id"] not in accepted:
                patched = row["patched"].replace(OR, " or ") or "no version"
                yield f"{row['package']} {version} has {row['id']} ({row['kind']}); {patched} is free of it: https://rustsec.org/advisories/{row['id']}"
    for advisory, entry in accepted.items():
        if advisory not in concerned:
            yield f"{advisory} concerns no package any more: take it out of ACCEPTED"
        elif entry.absent and (found := re.search(entry.absent, sources)):
            yield f"{advisory} is accepted as {found.group()!r} is nowhere in crates/, and now it is: {entry.reason}"


def advisory_of(text: str) -> dict[str, str] | None:
    """A row of the list, of a file of the database; `None` if the advisory was withdrawn."""
    block = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    told = tomllib.loads(block.group(1)) if block else {}
    advisory = told["advisory"]
    if "withdrawn" in advisory:
        return None
    versions = told.get("versions", {})
    return {
        "id": advisory["id"],
        "package": advisory["package"],
        "kind": advisory.get("informational", "vulnerability"),
        "patched": OR.join(versions.get("patched", [])),
        "unaffected": OR.join(versions.get("unaffected", [])),
        "systems": ",".join(told.get("affected", {}).get("os", [])),
    }


def make(database: str) -> str:
    """The list of all advisories of a database's clone, as of its newest commit."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", database, *words], check=True, stdout=subprocess.PIPE, text=True).stdout

    names = [name for name in git("ls-tree", "-r", "--name-only", "HEAD", "crates").splitlines() if name.endswith(".md")]
    rows = [row for name in names if (row := advisory_of(git("show", f"HEAD:{name}"))) is not None]
    lines = ["\t".join(row[column] for column in COLUMNS) for row in sorted(rows, key=lambda row: row["id"])]
    day, commit = git("log", "-1", "--format=%cs %h").split()
    heading = f"# RustSec's advisory database of {day} ({commit}), public domain (CC0 1.0), some of it from GitHub's (CC BY 4.0)"
    return "\n".join([heading, "\t".join(COLUMNS), *lines]) + "\n"


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--make"]:
        print(make(arguments[1]), end="")
        return 0
    path = Path(arguments[0] if arguments else os.environ.get("MERIDIAN_ADVISORIES") or USUAL_LIST)
    if not path.exists() and not arguments:
        print(f"advisories: NONE CHECKED, as there is no list; scripts/{Path(__file__).name} says how to make one")
        return 0
    about, rows = read_list(path.read_text(encoding="utf-8"))
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    packages = [package for package in lock["package"] if "source" in package]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "crates").rglob("*.rs"))
    found = list(complaints(rows, packages, ACCEPTED, sources))
    for complaint in found:
        print(f"advisories: {complaint}", file=sys.stderr)
    if not found:
        print(f"advisories: {len(packages)} packages, {len(rows)} advisories, {len(ACCEPTED)} accepted; {about}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
