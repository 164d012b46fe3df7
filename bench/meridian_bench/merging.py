"""One record of several runs: every group is asked together with Meridian, so groups may be asked on different days."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .query import LOOKUP

Record = dict[str, Any]
OURS = "meridian"
# What the runs must have in common, by where the record's `about` has it.
SAME = (
    ("size",),
    ("threads",),
    ("apart",),
    ("lookups",),
    ("block",),
    ("budget",),
    ("cold_rounds",),
    ("machine", "processor"),
    ("machine", "memory"),
    ("machine", "kernel"),
    ("catalogue", "made_by"),
    ("catalogue", "tables"),
)


class Unlike(Exception):
    """Runs that one report cannot show; the text says which and why."""


def merged(records: Sequence[Record]) -> Record:
    """The first record, and of each other what its groups add to it."""
    whole = records[0]
    for number, other in enumerate(records[1:], start=2):
        reject_unlike(whole, other, number)
        whole = joined(whole, other)
    return whole


def reject_unlike(first: Record, other: Record, number: int) -> None:
    """A program, a catalogue, a machine or a number of queries that is not the first run's."""
    for way in SAME:
        ours, theirs = at(first["about"], way), at(other["about"], way)
        if ours != theirs:
            raise Unlike(f"run {number} differs from the first in {' '.join(way)}: {theirs} and {ours}.")
    if has_scans(first) and has_scans(other) and first["about"]["rounds"] != other["about"]["rounds"]:
        raise Unlike(f"run {number} asked scans {other['about']['rounds']} times, the first {first['about']['rounds']} times.")
    for name, version in other["versions"].items():
        known = first["versions"].get(name, version)
        if version != known:
            raise Unlike(f"run {number} asked version {version} of {name}, the first {known}.")
    groups = first["about"]["groups"]
    if again := [name for group in other["about"]["groups"] for name in group if any(name in one for one in groups)]:
        raise Unlike(f"run {number} asked whom the first had asked already: {', '.join(again)}.")
    if "cones" in first and "cones" in other:
        raise Unlike(f"run {number} asked for cones over HTTP, as the first did.")


def at(about: Record, way: Sequence[str]) -> Any:
    """What a record of a run says at some place of it."""
    found: Any = about
    for step in way:
        found = found[step]
    return found


def has_scans(record: Record) -> bool:
    """Whether anything was asked that is asked in rounds."""
    return any(asked["kind"] != LOOKUP for asked in record["queries"])


def joined(first: Record, other: Record) -> Record:
    """Both: other groups are numbered on, a table that both loaded was loaded as the first run says."""
    offset = len(first["about"]["groups"])
    known = {(load["contender"], load["table"]) for load in first["loads"]}
    memory = first["memory"] | {
        name: max(peak, first["memory"].get(name, 0)) for name, peak in other["memory"].items()
    }
    cones = {"cones": one["cones"] for one in (first, other) if "cones" in one}
    return {
        "about": about_both(first["about"], other["about"]),
        "versions": first["versions"] | other["versions"],
        "absent": first["absent"] | other["absent"],
        "loads": first["loads"] + [load for load in other["loads"] if (load["contender"], load["table"]) not in known],
        "memory": memory,
        "queries": first["queries"] + [asked | {"group": asked["group"] + offset} for asked in other["queries"]],
        "left_out": {
            name: first["left_out"].get(name, {}) | other["left_out"].get(name, {})
            for name in [*first["left_out"], *other["left_out"]]
        },
        **cones,
    }


def about_both(first: Record, other: Record) -> Record:
    """What the report says of the runs; `parts` says it of those besides the first one."""
    part = {name: other[name] for name in ("date", "seed", "groups", "chosen")}
    skipped = [name for name in first["skipped"] if name in other["skipped"]]
    groups = [*first["groups"], *other["groups"]]
    return first | {"groups": groups, "skipped": skipped, "parts": [*first.get("parts", []), part]}
