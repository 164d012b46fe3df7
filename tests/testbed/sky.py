"""The testbed's own sky: a small part of the made-up catalogue, and a table of values at the ends of their types.

The part keeps what a database may trip over: poles, the seam at RA 0, edges of chunks, awkward keys, orphans, NULLs, pairs
whose ends lie in different chunks. It is small, so that thousands of statements can be asked of it.
"""

from __future__ import annotations

import datetime
import decimal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import synthetic
import table_files
from meridian_cli import Meridian
from synthetic import TableData

DATABASE = "sky"
STRIPES, SUB_STRIPES, OVERLAP_DEGREES = 9, 4, 0.05
OBJECTS_KEPT = 1_200
# One of so many rows of Object and RefObject is kept beside the special ones.
STEP = 40

INDEXES = {
    "Object": ["objectId"],
    "Source": ["objectId", "sourceId"],
    "RefObject": ["refId"],
    "RefMatch": ["refId", "objectId"],
}


def special_objects(rows: pa.Table) -> np.ndarray:
    """Which objects are kept for what they are."""
    keys = rows["objectId"].to_numpy()
    ra, dec = rows["ra_PS"].to_numpy(), rows["decl_PS"].to_numpy()
    awkward = (keys < 1_000_000) | (keys > 1_000_000_000)
    polar = np.abs(dec) > 89.9
    at_seam = (ra < 1e-4) | (ra > 359.9999)
    # Stripes are 20 degrees high.
    at_edge = np.abs(dec / 20.0 - np.round(dec / 20.0)) < 1e-5
    return awkward | polar | at_seam | (at_edge & (np.arange(len(keys)) % 3 == 0))


def make_tables() -> dict[str, TableData]:
    """The tables by name, in an order in which they can be loaded."""
    made = synthetic.make_catalogue()
    objects = made["Object"].rows
    chosen = special_objects(objects) | (np.arange(objects.num_rows) % STEP == 0)
    objects = objects.filter(pa.array(chosen)).slice(0, OBJECTS_KEPT)
    keys = objects["objectId"].combine_chunks()
    sources = made["Source"].rows
    source_keys = sources["objectId"]
    # Sources of the objects, orphans and those without a key.
    is_orphan = pc.or_(pc.less(source_keys, -1_000_300), pc.greater(source_keys, 800_000_300))
    of_object = pc.is_in(source_keys, keys)
    without_key = pc.is_null(source_keys)
    every_tenth = pa.array(np.arange(sources.num_rows) % 10 == 0)
    sources = sources.filter(
        pc.or_(of_object, pc.or_(pc.fill_null(is_orphan, False), pc.and_(without_key, every_tenth)))
    )
    matches = made["RefMatch"].rows
    with_object = pc.fill_null(pc.is_in(matches["objectId"], keys), False)
    odd = pc.or_(pc.is_null(matches["refId"]), pc.fill_null(pc.greater(matches["refId"], 77_000_000), False))
    matches = matches.filter(pc.or_(with_object, odd))
    references = made["RefObject"].rows
    paired = pc.is_in(references["refId"], matches["refId"].combine_chunks())
    few = pa.array((np.arange(references.num_rows) % STEP == 0) | (references["refId"].to_numpy() < 1_000_008))
    references = references.filter(pc.or_(paired, few))
    parts = {"Object": objects, "Source": sources, "RefObject": references, "RefMatch": matches}
    tables = {name: replace(made[name], rows=rows) for name, rows in parts.items()}
    return tables | {"Filter": made["Filter"], "Extremes": make_extremes()}


def make_extremes() -> TableData:
    """A replicated table of values at the ends of their types, and of types that catalogues seldom have."""
    types = {
        "id": "int NOT NULL",
        "tiny": "tinyint DEFAULT NULL",
        "big": "bigint DEFAULT NULL",
        "ubig": "bigint unsigned DEFAULT NULL",
        "uint_": "int unsigned DEFAULT NULL",
        "f": "float DEFAULT NULL",
        "d": "double DEFAULT NULL",
        "price": "decimal(12,3) DEFAULT NULL",
        "flag": "boolean DEFAULT NULL",
        "day": "date DEFAULT NULL",
        "at": "datetime DEFAULT NULL",
        "txt": "varchar(60) DEFAULT NULL",
        "raw": "varbinary(40) DEFAULT NULL",
    }
    low, high = -(2**63), 2**63 - 1
    day = datetime.date
    at = datetime.datetime
    money = decimal.Decimal
    rows = [
        (1, 127, high, 2**64 - 1, 2**32 - 1, 3.4e38, 1.7e308, money("999999999.999"), True, day(9999, 12, 31), at(9999, 12, 30, 12, 0, 0), "it's", b"\x00\xff"),
        (2, -128, low, 0, 0, -3.4e38, -1.7e308, money("-999999999.999"), False, day(1000, 1, 1), at(1000, 1, 1), 'say "so"', b""),
        (3, 0, 0, 1, 1, 0.0, 0.0, money("0.000"), False, day(2000, 2, 29), at(2000, 2, 29, 12, 30, 15), "", b"abc"),
        (4, -1, -1, 2**63, 2**31, -0.0, -0.0, money("-0.001"), True, day(1970, 1, 1), at(1970, 1, 1), "tab\there", b"tab\there"),
        (5, 1, 1, 2**63 - 1, 7, 1e-45, 5e-324, money("0.500"), None, day(1999, 12, 31), at(1999, 12, 31, 23, 59, 59), "two\nlines", b"\\"),
        (6, None, None, None, None, None, None, None, None, None, None, None, None),
        (7, 42, 9_007_199_254_740_993, 9_007_199_254_740_993, 42, 0.1, 0.1, money("1.500"), True, day(2024, 2, 29), at(2024, 2, 29, 6, 7, 8), "back\\slash", b"A"),
        (8, 7, -9_007_199_254_740_993, 12, 12, 16777216.0, 1e22, money("2.500"), False, day(2023, 10, 5), at(2023, 10, 5, 18, 45, 0), "12abc", b"a"),
        (9, 5, 4_611_686_018_427_387_904, 5, 5, 2.5, 2.5, money("-2.500"), True, day(2010, 6, 15), at(2010, 6, 15, 0, 0, 1), " 3.5e1 ", b"\xe2\x98\x84"),
        (10, -5, -4_611_686_018_427_387_905, 6, 6, -2.5, -2.5, money("10.005"), False, day(2010, 6, 14), at(2010, 6, 14, 13, 0, 0), "100%_sure", b"%"),
        (11, 3, 3, 3, 3, 3.5, 3.5, money("3.000"), True, day(2010, 1, 31), at(2010, 1, 31, 1, 2, 3), "Ωmega ☄ 星 é", "Ω".encode()),
        (12, 9, 12345, 12345, 12345, 1.5, 0.5, money("7.125"), True, day(2011, 3, 27), at(2011, 3, 27, 2, 30, 0), "Plain", b"Plain"),
        (13, 9, 12345, 12345, 12345, 1.5, 0.5, money("7.125"), True, day(2011, 3, 27), at(2011, 3, 27, 2, 30, 0), "plain", b"plain"),
        (14, 10, 100, 100, 100, float("nan"), float("nan"), money("100.000"), False, day(2012, 12, 31), at(2012, 12, 31, 11, 59, 59), "-7", b"-7"),
    ]  # fmt: skip
    arrow = [
        pa.int32(), pa.int8(), pa.int64(), pa.uint64(), pa.uint32(), pa.float32(), pa.float64(), pa.decimal128(12, 3),
        pa.bool_(), pa.date32(), pa.timestamp("us"), pa.string(), pa.binary(),
    ]  # fmt: skip
    columns = [pa.array(values, kind, from_pandas=True) for values, kind in zip(zip(*rows), arrow)]
    return TableData("Extremes", types, pa.table(columns, names=list(types)))


def load(meridian: Meridian, directory: Path, tables: dict[str, TableData]) -> Path:
    """Loads the tables into a new data directory of Meridian."""
    data = directory / "data"
    cut = {"stripes": STRIPES, "sub_stripes": SUB_STRIPES, "overlap": OVERLAP_DEGREES}
    options: dict[str, dict[str, object]] = {
        "Object": {"kind": "director", "key": "objectId", "ra": "ra_PS", "dec": "decl_PS", **cut},
        "Source": {"kind": "child", "key": "objectId", "director": "Object", "ra": "ra", "dec": "decl"},
        "RefObject": {"kind": "director", "key": "refId", "ra": "ra", "dec": "decl"},
        "RefMatch": {"kind": "match", "director": "RefObject,Object", "key": "refId,objectId"},
        "Filter": {"kind": "replicated"},
        "Extremes": {"kind": "replicated"},
    }
    for name, table in tables.items():
        path = table_files.write_parquet(directory / f"{name}.parquet", table)
        meridian.load(data, DATABASE, name, path, **options[name])
    return data
