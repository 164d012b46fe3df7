"""Small tables for tests of loading: quick to write, quick to load, easy to check."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from meridian_cli import Meridian

# A coarse cut: a few dozen chunks over the whole sky, so that a load is quick and still has many files.
CUT = {"stripes": 6, "sub_stripes": 4, "overlap": 0.5}
DIRECTOR = {"kind": "director", "key": "id", "ra": "ra", "dec": "dec", **CUT}
CHILD = {"kind": "child", "key": "id", "director": "Star"}
HEADER = "id,ra,dec,version"
# A sum with which a statement about pairs of stars takes as long as its tests need, however fast the machine is: so many seconds for
# one star in 3,000, in whichever piece that is.
WAITING = "SUM(IF(MOD(a.id, 3000) = 7 AND a.id = b.id, SLEEP({}), 0)) AS waited"


def star_lines(count: int, version: int, seed: int = 5) -> list[str]:
    """Lines of a director over the whole sky: id, ra, dec, version."""
    rng = np.random.default_rng(seed)
    ra = rng.uniform(0.0, 360.0, count)
    dec = np.degrees(np.arcsin(rng.uniform(-1.0, 1.0, count)))
    return [f"{n},{ra[n]:.9f},{dec[n]:.9f},{version}" for n in range(count)]


def write_lines(path: Path, lines: Iterable[str], header: str | None = HEADER) -> Path:
    """Writes a text file."""
    content = "" if header is None else header + "\n"
    path.write_text(content + "".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def write_stars(path: Path, count: int, version: int = 1) -> Path:
    """Writes a director's CSV file."""
    return write_lines(path, star_lines(count, version))


def load_stars_and_bands(meridian: Meridian, directory: Path, stars: int) -> Path:
    """A data directory with stars over the sky in many chunks, and a small replicated table of bands; both in the database sky."""
    data = directory / "data"
    meridian.load(data, "sky", "Star", write_stars(directory / "stars.csv", stars), **DIRECTOR)
    lines = (f"{n},band {n}" for n in range(5))
    meridian.load(data, "sky", "Band", write_lines(directory / "bands.csv", lines, "id,name"), kind="replicated")
    return data


def count_of(meridian: Meridian, data: Path, table: str = "Star", db: str = "sky") -> int:
    """How many rows a table shows."""
    (row,) = meridian.rows(data, db, f"SELECT count(*) FROM {table}")
    assert isinstance(row[0], int)
    return row[0]


def extract_version_0_1_0(directory: Path) -> Path:
    """A data directory made by a program of 2026-11-24, before tables had parts: a director, a child, pairs and filters."""
    with tarfile.open(Path(__file__).parent / "fixtures" / "version_0_1_0.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "data"


def chunk_files(data: Path, pattern: str = "chunk_*.mrd") -> list[Path]:
    """The chunk files of a data directory, the largest last."""
    return sorted(data.glob(f"tables/*/*/{pattern}"), key=lambda path: path.stat().st_size)
