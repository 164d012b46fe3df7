"""`meridian sky` against reference values that another implementation of the same geometry gave (lsst-sphgeom)."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import oracle
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


def chunks_of(meridian: Meridian, row: dict[str, str]) -> set[int]:
    """The chunks that Meridian finds for the region of a reference row."""
    cut = ("--stripes", row["num_stripes"], "--sub-stripes", row["num_sub_stripes"])
    return {int(chunk) for chunk in meridian.must("sky", "chunks", *cut, row["region"]).text.split()}


def test_regions_touch_no_chunk_that_the_reference_lacks(meridian: Meridian) -> None:
    # The reference may list more: it takes a polygon around a pole for its whole bounding box.
    for row in reference("region_chunks.csv"):
        surplus = chunks_of(meridian, row) - {int(chunk) for chunk in row["chunk_ids"].split()}
        assert not surplus, f"{row['region']} does not touch {surplus}"


def test_no_chunk_of_a_region_is_missed(meridian: Meridian) -> None:
    rng = np.random.default_rng(3)
    for row in reference("region_chunks.csv"):
        ra, dec = points_inside(rng, row["region"])
        lines = "".join(f"{one!r},{other!r}\n" for one, other in zip(ra.tolist(), dec.tolist()))
        cut = ("--stripes", row["num_stripes"], "--sub-stripes", row["num_sub_stripes"])
        located = meridian.must("sky", "locate", *cut, stdin=lines)
        hit = {int(line.split(",")[2]) for line in located.text.splitlines()}
        assert hit
        missed = hit - chunks_of(meridian, row)
        assert not missed, f"{row['region']} has points in {missed}"


def points_inside(rng: np.random.Generator, region: str) -> tuple[np.ndarray, np.ndarray]:
    """Random points of a region, in degrees."""
    shape, *words = region.split()
    given = [float(word) for word in words]
    if shape == "polygon":
        corners = oracle.unit_vectors(np.array(given[0::2]), np.array(given[1::2]))
        return positions(rng.dirichlet(np.ones(len(corners)), 1000) @ corners)
    if shape == "box":
        west, south, east, north = given
        width = east - west if east >= west else east - west + 360.0
        return np.mod(west + rng.random(1000) * width, 360.0), rng.uniform(south, north, 1000)
    ra, dec = points_around(rng, *given[:3])
    if shape == "ellipse":
        axes = given[2] / oracle.ARCSEC, given[3] / oracle.ARCSEC
        inside = oracle.inside_ellipse(ra, dec, *given[:2], *axes, given[4])
        return ra[inside], dec[inside]
    return ra, dec


def points_around(rng: np.random.Generator, ra: float, dec: float, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Random points within a radius (a hair less, for rounding) of a position."""
    centre = oracle.unit_vectors(np.array(ra), np.array(dec))
    away = np.cross(rng.normal(size=(4000, 3)), centre)
    away /= np.linalg.norm(away, axis=1)[:, None]
    angle = np.radians(radius * (1.0 - 1e-9) * np.sqrt(rng.random(4000)))[:, None]
    return positions(np.cos(angle) * centre + np.sin(angle) * away)


def positions(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Right ascension and declination of vectors of any length."""
    x, y, z = vectors.T
    return np.mod(np.degrees(np.arctan2(y, x)), 360.0), np.degrees(np.arctan2(z, np.hypot(x, y)))


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
def test_nonsense_is_rejected_in_a_sentence(
    meridian: Meridian, arguments: tuple[object, ...], stdin: str, names: str
) -> None:
    outcome = meridian.run("sky", *arguments, stdin=stdin)
    assert outcome.status not in (0, 101)
    assert names in outcome.complaint
    assert "panicked" not in outcome.complaint
