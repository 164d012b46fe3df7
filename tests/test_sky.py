"""`meridian sky` against reference values that another implementation of the same geometry gave (lsst-sphgeom)."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import pytest

from meridian_cli import Meridian

VECTORS = Path(__file__).resolve().parent.parent / "crates" / "sky" / "tests" / "vectors"


def reference(name: str) -> list[dict[str, str]]:
    """The rows of one file of reference values."""
    with open(VECTORS / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def numbers(line: str) -> list[float]:
    """The fields of a line of output."""
    return [float(field) for field in line.split(",")]


def test_points_fall_into_the_reference_chunks(meridian: Meridian) -> None:
    by_cut: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in reference("chunk_points.csv"):
        by_cut[row["num_stripes"], row["num_sub_stripes"]].append(row)
    for (stripes, sub_stripes), rows in by_cut.items():
        lines = "".join(f"{row['ra_deg']},{row['dec_deg']}\n" for row in rows)
        answer = meridian.must("sky", "locate", "--stripes", stripes, "--sub-stripes", sub_stripes, stdin=lines)
        found = [numbers(line) for line in answer.text.splitlines()]
        expected = [[float(row[name]) for name in ("ra_deg", "dec_deg", "chunk_id", "sub_chunk_id")] for row in rows]
        assert found == expected


def test_regions_touch_the_reference_chunks(meridian: Meridian) -> None:
    wrong = []
    for row in reference("region_chunks.csv"):
        cut = ("--stripes", row["num_stripes"], "--sub-stripes", row["num_sub_stripes"])
        answer = meridian.must("sky", "chunks", *cut, row["region"])
        found = [int(chunk) for chunk in answer.text.replace(",", " ").split()]
        if found != [int(chunk) for chunk in row["chunk_ids"].split()]:
            wrong.append((row, found))
    assert not wrong, f"{len(wrong)} regions differ, first {wrong[0]}"


def test_htm_numbers(meridian: Meridian) -> None:
    by_level: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in reference("htm_points.csv"):
        by_level[row["level"]].append(row)
    for level, rows in by_level.items():
        lines = "".join(f"{row['ra_deg']},{row['dec_deg']}\n" for row in rows)
        answer = meridian.must("sky", "htm", "--level", level, stdin=lines)
        found = [int(line.rsplit(",", 1)[1]) for line in answer.text.splitlines()]
        assert found == [int(row["htm_id"]) for row in rows], f"level {level}"


def test_positions_are_given_back_as_they_were_read(meridian: Meridian) -> None:
    answer = meridian.must("sky", "locate", "--stripes", 85, "--sub-stripes", 12, stdin="10.5,-3.25\n0,90\n")
    assert [numbers(line)[:2] for line in answer.text.splitlines()] == [[10.5, -3.25], [0.0, 90.0]]


def test_no_positions_give_no_lines(meridian: Meridian) -> None:
    assert meridian.must("sky", "locate", "--stripes", 85, "--sub-stripes", 12).text == ""


@pytest.mark.parametrize(
    ("arguments", "stdin", "names"),
    [
        (("locate", "--stripes", 85, "--sub-stripes", 12), "10,95\n", "95"),
        (("locate", "--stripes", 85, "--sub-stripes", 12), "10,2\nten,2\n", "2"),
        (("locate", "--stripes", 85, "--sub-stripes", 12), "10\n", "1"),
        (("locate", "--stripes", 85, "--sub-stripes", 12), "nan,1\n", "1"),
        (("locate", "--stripes", 0, "--sub-stripes", 12), "10,2\n", "stripes"),
        (("htm", "--level", 60), "10,2\n", "level"),
        (("chunks", "--stripes", 85, "--sub-stripes", 12, "circle 10 -5"), "", "circle"),
        (("chunks", "--stripes", 85, "--sub-stripes", 12, "circle 10 -95 1"), "", "95"),
        (("chunks", "--stripes", 85, "--sub-stripes", 12, "disc 10 -5 1"), "", "disc"),
        (("chunks", "--stripes", 85, "--sub-stripes", 12, "box 1 5 2 -5"), "", "box"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(
    meridian: Meridian, arguments: tuple[object, ...], stdin: str, names: str
) -> None:
    outcome = meridian.run("sky", *arguments, stdin=stdin)
    assert outcome.status not in (0, 101)
    assert names in outcome.complaint
    assert "panicked" not in outcome.complaint
