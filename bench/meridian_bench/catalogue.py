"""The benchmark catalogue: its Parquet files, and what the harness needs to know of them."""

from __future__ import annotations

import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

# The columns that the published scans use: all that the largest size has.
NINE_COLUMNS = [
    "objectId",
    "ra_PS",
    "decl_PS",
    *(f"{band}Flux_PS" for band in "ugrizy"),
]
SAMPLED_OBJECTS = 20_000


@dataclass(frozen=True)
class TableFiles:
    """One table: its Parquet files, which columns are its key and its position, and in what order rows lie well."""

    name: str
    files: list[str]
    columns: list[str]
    key: str
    ra: str
    dec: str
    rows: int
    bytes: int
    # The table whose key is this one's, for a child; otherwise it is found by its own position.
    director: str | None
    # Columns that tell rows apart and bring together what is asked together.
    order: list[str]


@dataclass(frozen=True)
class Catalogue:
    """The tables of the catalogue by name, and how it was made."""

    directory: str
    tables: dict[str, TableFiles]
    made_by: str

    def as_json(self) -> dict[str, object]:
        """What the report needs."""
        described = {name: asdict(table) | {"files": len(table.files)} for name, table in self.tables.items()}
        return {"tables": described, "made_by": self.made_by}


@dataclass(frozen=True)
class Kind:
    """What is known of a table beforehand."""

    key: str
    ra: str
    dec: str
    director: str | None
    order: tuple[str, ...]


KINDS = {
    "Object": Kind("objectId", "ra_PS", "decl_PS", None, ("objectId",)),
    "Source": Kind("objectId", "ra", "decl", "Object", ("objectId", "taiMidPoint")),
    "Optical": Kind("opticalId", "ra", "decl", None, ("opticalId",)),
    "Infrared": Kind("infraredId", "ra", "decl", None, ("infraredId",)),
}


def open_catalogue(directory: Path, made_by: str) -> Catalogue:
    """Looks at the Parquet files below `directory`."""
    tables = open_tables(directory, ("Object", "Source"))
    if "Object" not in tables:
        raise SystemExit(f"There are no Parquet files in {directory / 'Object'}.")
    return Catalogue(str(directory), tables, made_by)


def open_tables(directory: Path, names: Sequence[str]) -> dict[str, TableFiles]:
    """Those of the tables that have Parquet files below `directory`."""
    tables = {}
    for name in names:
        files = sorted((directory / name).glob("*.parquet"))
        if not files:
            continue
        kind = KINDS[name]
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        size = sum(file.stat().st_size for file in files)
        columns = pq.read_schema(files[0]).names
        paths = [str(file) for file in files]
        tables[name] = TableFiles(
            name, paths, columns, kind.key, kind.ra, kind.dec, rows, size, kind.director, list(kind.order)
        )
    return tables


def prepare(
    directory: Path,
    program: Path,
    objects: int,
    epochs: int,
    seed: int,
    only_nine_columns: bool,
    density: int | None = None,
) -> Catalogue:
    """Makes the catalogue, unless `directory` has one of the same description from an earlier run."""
    wanted = f"{objects} objects, {epochs} epochs, seed {seed}, {'nine' if only_nine_columns else 'all'} columns"
    wanted += f", {density} in a square degree" if density else ""
    note = directory / "made_by.txt"
    if note.is_file() and note.read_text().startswith(wanted):
        return open_catalogue(directory, note.read_text().strip())
    shutil.rmtree(directory, ignore_errors=True)
    command = [str(program), "synthesize", "generate", "--objects", str(objects), "--seed", str(seed)]
    command += ["--density", str(density)] if density else []
    command += ["--epochs", str(epochs)] if epochs else []
    if only_nine_columns:
        command += ["--tables", "Object", "--columns", ",".join(NINE_COLUMNS)]
    command += ["--out", str(directory)]
    print(f"making the catalogue: {wanted}", file=sys.stderr, flush=True)
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        raise SystemExit(f"The catalogue could not be made: {' '.join(command)} failed.")
    # Whoever loads first would wait for these files to reach the disk.
    os.sync()
    note.write_text(f"{wanted}; made by `meridian synthesize generate`\n")
    return open_catalogue(directory, note.read_text().strip())


@dataclass(frozen=True)
class Sky:
    """Where the catalogue lies, and some of its objects: what constants are drawn from. Degrees."""

    ra_min: float
    ra_max: float
    dec_min: float
    dec_max: float
    objects: list[tuple[int, float, float]]
    # Objects in a square degree.
    density: float


def survey(catalogue: Catalogue, rng: random.Random) -> Sky:
    """Reads a sample of the objects: random row groups of random files, random rows of each."""
    table = catalogue.tables["Object"]
    places = []
    for file in rng.sample(table.files, min(40, len(table.files))):
        groups = range(pq.ParquetFile(file).num_row_groups)
        places += [(file, group) for group in rng.sample(groups, min(2, len(groups)))]
    objects: list[tuple[int, float, float]] = []
    for file, group in places:
        rows = pq.ParquetFile(file).read_row_group(group, columns=[table.key, table.ra, table.dec])
        wanted = min(rows.num_rows, -(-SAMPLED_OBJECTS // len(places)))
        rows = rows.take(rng.sample(range(rows.num_rows), wanted))
        objects += list(zip(*(rows.column(i).to_pylist() for i in range(3)), strict=True))
    ra_min, ra_max = _bounds(table, table.ra)
    dec_min, dec_max = _bounds(table, table.dec)
    heights = math.degrees(math.sin(math.radians(dec_max)) - math.sin(math.radians(dec_min)))
    density = table.rows / ((ra_max - ra_min) * heights)
    return Sky(ra_min, ra_max, dec_min, dec_max, objects, density)


def _bounds(table: TableFiles, column: str) -> tuple[float, float]:
    """Least and greatest value of a column, from the files' statistics or else from the rows."""
    low, high = float("inf"), float("-inf")
    for file in table.files:
        metadata = pq.read_metadata(file)
        at = metadata.schema.names.index(column)
        for group in range(metadata.num_row_groups):
            statistics = metadata.row_group(group).column(at).statistics
            if statistics is None or not statistics.has_min_max:
                values = pc.min_max(pq.read_table(file, columns=[column]).column(0))
                least, greatest = values["min"].as_py(), values["max"].as_py()
            else:
                least, greatest = statistics.min, statistics.max
            low, high = min(low, least), max(high, greatest)
    return low, high
