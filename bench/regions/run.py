#!/usr/bin/env python3
"""The objects of a detector, read in region files by Python and by Rust, beside a filter of the same rows in a Parquet data set, in turns.
See README.md.

    bench/regions/run.py --meridian target/release/meridian [--time-regions target/release/examples/time_regions] [--rows 20000000]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from meridian_apdb import polygon  # noqa: E402
from meridian_apdb import sky as geometry  # noqa: E402
from meridian_apdb.region_files import RegionFiles  # noqa: E402

COLUMNS = ["diaObjectId", "ra", "dec", "validityStartMjdTai", "nDiaSources"]
ROWS_AT_A_TIME = 1_000_000
ROW_GROUP = 65_536
SEED = 28


def write_objects(directory: Path, rows: int, width: float, height: float) -> None:
    """Objects of equal density in a field across right ascension 0, in Parquet files."""
    rng = np.random.default_rng(SEED)
    directory.mkdir()
    bottom, top = (math.sin(math.radians(dec)) for dec in (-height / 2, height / 2))
    for number, first in enumerate(range(0, rows, ROWS_AT_A_TIME)):
        count = min(ROWS_AT_A_TIME, rows - first)
        # An odd factor keeps numbers apart.
        numbers = np.arange(first, first + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        columns = {
            "diaObjectId": (numbers & np.uint64(2**62 - 1)).astype(np.int64),
            "ra": rng.uniform(-width / 2, width / 2, count) % 360.0,
            "dec": np.degrees(np.arcsin(rng.uniform(bottom, top, count))),
            "validityStartMjdTai": rng.uniform(60000.0, 61000.0, count),
            "nDiaSources": rng.integers(1, 500, count, dtype=np.int32),
        }
        pq.write_table(pa.table(columns), directory / f"part-{number:04}.parquet")


def write_region_files(program: Path, objects: Path, directory: Path) -> Path:
    """The same rows, loaded into Meridian and written as region files."""
    data, files = directory / "data", directory / "regions"
    table = ["--data", data, "--db", "sky", "--table", "DiaObject"]
    cut = ["--stripes", 85, "--sub-stripes", 12, "--overlap", 0.01]
    load = ["load", *table, "--kind", "director", "--key", "diaObjectId", "--ra", "ra", "--dec", "dec", *cut, *sorted(objects.iterdir())]
    columns = ["--columns", ",".join(COLUMNS)]
    for arguments in (load, ["alerts", "regions", *table, *columns, "--output", files]):
        begun = time.monotonic()
        subprocess.run([str(program), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
        print(f"{' '.join(map(str, arguments[:2]))}: {time.monotonic() - begun:.1f} s", flush=True)
    return files


def write_parquet(files: Path, directory: Path) -> Path:
    """The rows of the region files as Parquet, in the same order: a file for each chunk, whose row groups tell where their rows are."""
    output = directory / "parquet"
    output.mkdir()
    for chunk in sorted((files / "chunks").iterdir()):
        with pa.ipc.open_file(pa.memory_map(str(chunk))) as reader:
            pq.write_table(reader.read_all(), output / f"{chunk.stem}.parquet", row_group_size=ROW_GROUP)
    return output


def detectors(count: int, side: float, width: float, height: float) -> list[list[tuple[float, float]]]:
    """The corners of detectors anywhere in the field, turned in any direction."""
    rng, half = np.random.default_rng(SEED + 1), side / math.sqrt(2.0)
    found = []
    for _ in range(count):
        ra, dec = rng.uniform(-width / 2 + side, width / 2 - side), rng.uniform(-height / 2 + side, height / 2 - side)
        turned = rng.uniform(0.0, 90.0)
        angles = np.radians(turned + 90.0 * np.arange(4))
        corners = zip(ra + half * np.cos(angles) / math.cos(math.radians(dec)), dec + half * np.sin(angles), strict=True)
        found.append([(float(corner_ra) % 360.0, float(corner_dec)) for corner_ra, corner_dec in corners])
    return found


def parquet_filter(dataset: ds.Dataset, corners: list[tuple[float, float]]) -> pa.Table:
    """The rows of a detector: those of the box around it, by the statistics of row groups, then those in the polygon."""
    ra = np.array([corner[0] for corner in corners])
    dec_min, dec_max = min(corner[1] for corner in corners), max(corner[1] for corner in corners)
    field = ds.field("ra")
    if np.ptp(ra) > 180.0:
        in_ra = (field >= ra[ra > 180.0].min()) | (field <= ra[ra < 180.0].max())
    else:
        in_ra = (field >= ra.min()) & (field <= ra.max())
    # An edge is an arc, which reaches beyond its ends by less than this.
    margin = 0.001
    in_dec = (ds.field("dec") >= dec_min - margin) & (ds.field("dec") <= dec_max + margin)
    found = dataset.to_table(columns=COLUMNS, filter=in_ra & in_dec)
    inside = geometry.parse(polygon(corners)).contains(found["ra"].to_numpy(), found["dec"].to_numpy())
    return found.filter(pa.array(inside))


def least_time(read: Callable[[], pa.Table], readings: int) -> tuple[int, float]:
    """The rows, and the least time of several readings after a first one."""
    rows, times = read().num_rows, []
    for _ in range(readings):
        begun = time.perf_counter()
        read()
        times.append(time.perf_counter() - begun)
    return rows, min(times)


def time_rust(program: Path, files: Path, regions: list[str], readings: int) -> list[tuple[int, float]]:
    command = [str(program), str(files), ",".join(COLUMNS), str(readings + 1)]
    done = subprocess.run(command, input="\n".join(regions), capture_output=True, text=True, check=True)
    return [(int(rows), float(seconds)) for rows, seconds in (line.split() for line in done.stdout.splitlines())]


def report(name: str, measured: list[tuple[int, float]]) -> None:
    times = sorted(1e3 * seconds for _, seconds in measured)
    print(f"| {name} | {statistics.median(times):.2f} | {times[len(times) * 95 // 100]:.2f} | {times[-1]:.2f} |", flush=True)


def measure(files: Path, parquet: Path, options: argparse.Namespace) -> None:
    begun = time.perf_counter()
    opened = RegionFiles(files)
    print(f"opening: {1e3 * (time.perf_counter() - begun):.1f} ms", flush=True)
    dataset = ds.dataset(parquet)
    chosen = detectors(options.detectors, options.side, options.width, options.height)
    by_files, by_parquet = [], []
    for corners in chosen:
        region = polygon(corners)
        by_files.append(least_time(lambda region=region: opened.read(region, columns=COLUMNS), options.readings))
        by_parquet.append(least_time(lambda corners=corners: parquet_filter(dataset, corners), max(1, options.readings // 5)))
    assert [rows for rows, _ in by_files] == [rows for rows, _ in by_parquet], "the two have found other rows"
    rows = [rows for rows, _ in by_files]
    print(f"{opened.rows:,} objects, {len(chosen)} detectors of {options.side} degrees with {min(rows):,} to {max(rows):,} of them\n")
    print("| reader | median, ms | 95 of 100, ms | slowest, ms |\n|---|---|---|---|")
    report("region files, Python", by_files)
    if options.time_regions:
        by_rust = time_rust(options.time_regions, files, [polygon(corners) for corners in chosen], options.readings)
        assert [rows for rows, _ in by_rust] == rows, "Rust has found other rows"
        report("region files, Rust", by_rust)
    report("Parquet data set", by_parquet)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meridian", type=Path, required=True, help="the program, which loads the rows and writes the region files")
    parser.add_argument("--time-regions", type=Path, help="the example time_regions of the crate region-files")
    parser.add_argument("--rows", type=int, default=20_000_000, help="objects")
    parser.add_argument("--width", type=float, default=30.0, help="degrees of right ascension of the field")
    parser.add_argument("--height", type=float, default=10.0, help="degrees of declination of the field")
    parser.add_argument("--side", type=float, default=0.22, help="degrees of a side of a detector")
    parser.add_argument("--detectors", type=int, default=100, help="detectors that are read")
    parser.add_argument("--readings", type=int, default=10, help="how often each is read")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="meridian-regions-") as name:
        directory = Path(name)
        write_objects(directory / "objects", options.rows, options.width, options.height)
        files = write_region_files(options.meridian, directory / "objects", directory)
        source = json.loads((files / "index.json").read_text())["source"]
        print(f"region files of {source['database']}.{source['table']}", flush=True)
        measure(files, write_parquet(files, directory), options)


if __name__ == "__main__":
    main()
