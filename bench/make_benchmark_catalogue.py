#!/usr/bin/env python3
"""Writes the benchmark catalogue: a dense patch of sky as Parquet files.

    python3 bench/make_benchmark_catalogue.py --objects 20000000 --sources-per-object 5 --out DIR

makes DIR/Object/object_NNNN.parquet and DIR/Source/source_NNNN.parquet. The patch has an area of 400 square degrees at
any number of objects (20 million give 50,000 for each square degree); a tenth of the objects stand in clumps of about
50 that are about 0.01 degree wide. Fluxes are in erg/s/cm2/Hz, as in the LSST tables, with a faint end where most
objects are and colours that leave a handful of rows to the colour cuts of the published test queries.

Each file is made from its own random stream, so a file's content depends on the seed and its number alone, and memory
holds one file's objects at a time. Needs numpy and pyarrow.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

AREA_SQUARE_DEGREES = 400.0
DECLINATION_RANGE = (-10.0, 10.0)
FIRST_RA = 0.0
CLUMP_FRACTION = 0.1
CLUMP_MEMBERS = 50
CLUMP_SIGMA_DEGREES = 0.005

FIRST_OBJECT_ID = 433_327_840_000_000
FIRST_SOURCE_ID = 2_867_930_096_000_000
BANDS = ("u", "g", "r", "i", "z", "y")
# Mean and scatter of each band's magnitude less that of r.
COLOUR_MEAN = {"u": 2.0, "g": 0.7, "r": 0.0, "i": -0.35, "z": -0.5, "y": -0.6}
COLOUR_SCATTER = {"u": 0.6, "g": 0.35, "r": 0.0, "i": 0.25, "z": 0.35, "y": 0.4}
# The part of the objects that a band did not see: NULL there.
NULL_FRACTION = {"u": 0.10, "g": 0.02, "r": 0.0, "i": 0.0, "z": 0.01, "y": 0.05}
BRIGHT_LIMIT, FAINT_LIMIT = 16.0, 27.0
COUNTS_SLOPE = 0.3  # log10 of the number of objects grows by this for each magnitude
FIRST_NIGHT = 49_553.0
SURVEY_DAYS = 3_652.0
ASTROMETRIC_SIGMA_DEGREES = 0.1 / 3600.0

ROW_GROUP_ROWS = 262_144


def patch_width_in_ra() -> float:
    """Degrees of right ascension that give the patch its area between the two declinations."""
    low, high = np.radians(DECLINATION_RANGE)
    return AREA_SQUARE_DEGREES / float(np.degrees(np.sin(high) - np.sin(low)))


def uniform_positions(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of equal density on the sphere within the patch, in degrees."""
    low, high = np.sin(np.radians(DECLINATION_RANGE))
    dec = np.degrees(np.arcsin(rng.uniform(low, high, count)))
    ra = FIRST_RA + rng.uniform(0.0, patch_width_in_ra(), count)
    return ra, dec


def object_positions(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of `count` objects, a tenth of them in clumps, in no order of place."""
    ra, dec = uniform_positions(rng, count)
    clumped = np.flatnonzero(rng.random(count) < CLUMP_FRACTION)
    clumps = max(1, len(clumped) // CLUMP_MEMBERS)
    centre_ra, centre_dec = uniform_positions(rng, clumps)
    clump = rng.integers(0, clumps, len(clumped))
    offsets = rng.normal(0.0, CLUMP_SIGMA_DEGREES, (2, len(clumped)))
    dec[clumped] = centre_dec[clump] + offsets[0]
    ra[clumped] = centre_ra[clump] + offsets[1] / np.cos(np.radians(dec[clumped]))
    return np.mod(ra, 360.0), dec


def red_magnitudes(rng: np.random.Generator, count: int) -> np.ndarray:
    """Magnitudes in r: exponential counts between the two limits."""
    steepness = COUNTS_SLOPE * np.log(10.0)
    span = np.expm1(steepness * (FAINT_LIMIT - BRIGHT_LIMIT))
    return BRIGHT_LIMIT + np.log1p(rng.random(count) * span) / steepness


def flux_of_magnitude(magnitude: np.ndarray) -> np.ndarray:
    """AB magnitudes to fluxes in erg/s/cm2/Hz."""
    return np.power(10.0, (magnitude + 48.6) / -2.5)


def flux_columns(rng: np.random.Generator, red: np.ndarray) -> dict[str, pa.Array]:
    """Six fluxes and their errors as 32-bit floats, some of them NULL."""
    columns: dict[str, pa.Array] = {}
    limit_flux = flux_of_magnitude(np.array(FAINT_LIMIT))
    for band in BANDS:
        scatter = rng.standard_normal(len(red), dtype=np.float32) * COLOUR_SCATTER[band]
        flux = flux_of_magnitude(red + COLOUR_MEAN[band] + scatter)
        sigma = 0.1 * np.sqrt(flux * limit_flux) + 0.005 * flux
        missing = rng.random(len(red), dtype=np.float32) < NULL_FRACTION[band]
        columns[f"{band}Flux_PS"] = pa.array(flux.astype(np.float32), mask=missing)
        columns[f"{band}Flux_PS_Sigma"] = pa.array(sigma.astype(np.float32), mask=missing)
    return columns


class ParquetFile:
    """A Parquet file that takes its name only when it is whole."""

    def __init__(self, path: Path, dictionary: list[str]) -> None:
        self.path = path
        self.unfinished = path.with_suffix(".tmp")
        self.dictionary = dictionary
        self.writer: pq.ParquetWriter | None = None

    def write(self, columns: dict[str, pa.Array | np.ndarray]) -> None:
        """Appends the rows of `columns`."""
        table = pa.table(columns)
        if self.writer is None:
            self.writer = pq.ParquetWriter(
                self.unfinished, table.schema, compression="zstd", compression_level=1, use_dictionary=self.dictionary
            )
        self.writer.write_table(table, row_group_size=ROW_GROUP_ROWS)

    def finish(self) -> None:
        """Closes the file and gives it its name."""
        if self.writer is not None:
            self.writer.close()
        self.unfinished.rename(self.path)


def write_objects(rng: np.random.Generator, path: Path, first: int, count: int) -> dict[str, np.ndarray]:
    """Writes one Object file; gives what the sources need: identifiers, positions, magnitudes."""
    ra, dec = object_positions(rng, count)
    red = red_magnitudes(rng, count)
    object_id = FIRST_OBJECT_ID + np.arange(first, first + count, dtype=np.int64)
    columns: dict[str, pa.Array | np.ndarray] = {"objectId": object_id, "ra_PS": ra, "decl_PS": dec}
    columns.update(flux_columns(rng, red))
    columns["extendedness"] = np.where(rng.random(count) < 0.7, 1.0, 0.0).astype(np.float32)
    columns["flags"] = np.where(rng.random(count) < 0.2, 1 << rng.integers(0, 12, count), 0).astype(np.int32)
    file = ParquetFile(path, ["extendedness", "flags"])
    file.write(columns)
    file.finish()
    return {"objectId": object_id, "ra": ra, "dec": dec, "red": red}


def write_sources(
    rng: np.random.Generator, path: Path, objects: dict[str, np.ndarray], first: int, epochs: int
) -> None:
    """Writes the sources of one Object file, epoch after epoch, as a telescope would deliver them."""
    count = len(objects["objectId"])
    file = ParquetFile(path, ["filterId"])
    for epoch in range(epochs):
        start = FIRST_SOURCE_ID + first * epochs + epoch * count
        offsets = rng.standard_normal((2, count), dtype=np.float32) * ASTROMETRIC_SIGMA_DEGREES
        magnitude = objects["red"] + 0.05 * rng.standard_normal(count, dtype=np.float32)
        flux = flux_of_magnitude(magnitude)
        night = FIRST_NIGHT + SURVEY_DAYS * (epoch + rng.random(count)) / epochs
        columns: dict[str, pa.Array | np.ndarray] = {
            "sourceId": np.arange(start, start + count, dtype=np.int64),
            "objectId": objects["objectId"],
            "taiMidPoint": night,
            "ra": np.mod(objects["ra"] + offsets[0] / np.cos(np.radians(objects["dec"])), 360.0),
            "decl": objects["dec"] + offsets[1],
            "psfFlux": flux.astype(np.float32),
            "psfFluxErr": (0.02 * flux).astype(np.float32),
            "filterId": rng.integers(0, len(BANDS), count).astype(np.int8),
        }
        file.write(columns)
    file.finish()


def write_catalogue(out: Path, objects: int, sources_per_object: int, seed: int, file_rows: int) -> None:
    """Writes all files, telling how far it is."""
    (out / "Object").mkdir(parents=True, exist_ok=True)
    (out / "Source").mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    for number, first in enumerate(range(0, objects, file_rows)):
        count = min(file_rows, objects - first)
        rng = np.random.default_rng([seed, number])
        made = write_objects(rng, out / "Object" / f"object_{number:04}.parquet", first, count)
        if sources_per_object > 0:
            path = out / "Source" / f"source_{number:04}.parquet"
            write_sources(rng, path, made, first, sources_per_object)
        elapsed = time.monotonic() - started
        print(f"{first + count:>12,} of {objects:,} objects written, {elapsed:.0f} s", flush=True)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Write the benchmark catalogue as Parquet files.")
    parser.add_argument("--objects", type=int, default=20_000_000, help="rows of Object (default 20 million)")
    parser.add_argument("--sources-per-object", type=int, default=5, help="rows of Source for each object (default 5)")
    parser.add_argument("--out", type=Path, required=True, help="directory to write to")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same rows (default 1)")
    parser.add_argument("--file-rows", type=int, default=1_000_000, help="objects in a file (default 1 million)")
    options = parser.parse_args()
    write_catalogue(options.out, options.objects, options.sources_per_object, options.seed, options.file_rows)


if __name__ == "__main__":
    main()
