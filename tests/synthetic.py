"""A made-up catalogue over the whole sky, the same at every run, with everything in it that a database may trip over.

Object is a director: both poles, the seam at RA 0, dense clumps, rows on the edges of chunks, awkward keys and texts.
Source is its child: own positions beside the object's (some beyond the object's chunk), orphans, NULL keys, NULL
positions. RefObject is a second director, RefMatch pairs the two (across chunk edges, with keys missing on either
side, NULLs, repeated pairs). Filter is replicated. With 18 stripes the rows fall into more than 300 chunks.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SEED = 20_231_117
STRIPES, SUB_STRIPES, OVERLAP_DEGREES = 18, 6, 0.05

OBJECTS = 40_000
SOURCES_PER_OBJECT = 3.0
REFERENCES = 8_000
BANDS = ("u", "g", "r", "i", "z", "y")
TEXTS = (
    "plain",
    'double "quotes" inside',
    "it's single",
    "a\ttab",
    "two\nlines",
    "comma, semicolon;",
    "",
    " spaces around ",
    "Ωmega ☄ 星 é",
    "NULL",
    "100%_sure",
    None,
)


@dataclass(frozen=True)
class TableData:
    """A table's rows and how MySQL would declare its columns."""

    name: str
    types: dict[str, str]
    rows: pa.Table


ARROW_TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "tinyint": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "varchar": pa.string(),
    "datetime": pa.timestamp("us"),
}


def arrow_type(declared: str) -> pa.DataType:
    """The Arrow type that holds a declared MySQL type."""
    return ARROW_TYPES[declared.split("(")[0].split()[0].lower()]


def table(name: str, types: dict[str, str], values: dict[str, object]) -> TableData:
    """Puts columns together; NaN in a floating-point column is NULL."""
    arrays = [pa.array(values[column], arrow_type(declared), from_pandas=True) for column, declared in types.items()]
    return TableData(name, types, pa.table(arrays, names=list(types)))


def with_nulls(rng: np.random.Generator, values: np.ndarray, fraction: float) -> np.ndarray:
    """Floating-point values, a part of them NaN."""
    return np.where(rng.random(len(values)) < fraction, np.nan, values)


def uniform_sphere(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of equal density over the whole sky."""
    return rng.uniform(0.0, 360.0, count), np.degrees(np.arcsin(rng.uniform(-1.0, 1.0, count)))


def jittered(
    rng: np.random.Generator, ra: np.ndarray, dec: np.ndarray, sigma: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Positions moved by a Gaussian of `sigma` degrees in each direction, right at the poles too."""
    lon, lat = np.radians(ra), np.radians(dec)
    vectors = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
    vectors += rng.normal(0.0, 1.0, vectors.shape) * np.radians(sigma)
    x, y, z = vectors / np.linalg.norm(vectors, axis=0)
    return np.mod(np.degrees(np.arctan2(y, x)), 360.0), np.degrees(np.arctan2(z, np.hypot(x, y)))


def clumps(rng: np.random.Generator, members: int) -> tuple[np.ndarray, np.ndarray]:
    """Forty dense clumps, some of them across chunk edges, the seam and the poles."""
    ra, dec = uniform_sphere(rng, 40)
    ra[:6] = [0.0, 0.001, 359.999, 120.0, 240.0, 10.0]
    dec[:6] = [0.0, 30.0, -50.0, 90.0, -90.0, 20.0]
    clump = np.repeat(np.arange(40), members)
    return jittered(rng, ra[clump], dec[clump], np.full(len(clump), 0.02))


def chunk_edges(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions within a second of arc or so of an edge between stripes, a few of them on it."""
    dec = rng.integers(-8, 9, count) * 10.0 + rng.choice([-1.0, 1.0], count) * rng.uniform(0, 3e-4, count)
    dec[:20] = np.round(dec[:20])
    return rng.uniform(0.0, 360.0, count), dec


def object_positions(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """All objects' positions, in no order of place."""
    seam_ra = np.mod(rng.uniform(-0.3, 0.3, 3000), 360.0)
    seam_ra[:4] = [0.0, 359.9999999999, 1e-10, 359.99999]
    seam_dec = rng.uniform(-60.0, 60.0, 3000)
    cap_ra = rng.uniform(0.0, 360.0, 2000)
    cap_dec = np.concatenate([rng.uniform(89.0, 90.0, 1200), rng.uniform(-90.0, -89.0, 800)])
    cap_dec[:3], cap_dec[-3:] = 90.0, -90.0
    parts = [(seam_ra, seam_dec), (cap_ra, cap_dec), clumps(rng, 250), chunk_edges(rng, 1000)]
    parts.append(uniform_sphere(rng, OBJECTS - sum(len(part[0]) for part in parts)))
    order = rng.permutation(OBJECTS)
    return np.concatenate([part[0] for part in parts])[order], np.concatenate([part[1] for part in parts])[order]


def object_keys(rng: np.random.Generator) -> np.ndarray:
    """Unique keys: scattered, some negative, zero, and some that a double cannot tell apart."""
    keys = 1_000_000 + 7 * np.arange(OBJECTS, dtype=np.int64)
    keys[:8] = [0, -1, -77, 9_007_199_254_740_993, 9_007_199_254_740_992, 9_007_199_254_740_994, 1, 2**62]
    return rng.permutation(keys)


def make_objects(rng: np.random.Generator) -> TableData:
    """The director."""
    types = {"objectId": "bigint NOT NULL", "ra_PS": "double NOT NULL", "decl_PS": "double NOT NULL"}
    types |= {f"{band}Flux_PS": "float DEFAULT NULL" for band in BANDS}
    types |= {
        "flags": "int(11) NOT NULL",
        "extendedness": "float DEFAULT NULL",
        "nObs": "smallint DEFAULT NULL",
        "lastSeen": "datetime DEFAULT NULL",
        "name": "varchar(80) DEFAULT NULL",
    }
    ra, dec = object_positions(rng)
    values: dict[str, object] = {"objectId": object_keys(rng), "ra_PS": ra, "decl_PS": dec}
    for band in BANDS:
        flux = np.power(10.0, -0.4 * (rng.uniform(17.0, 27.0, OBJECTS) + 48.6)).astype(np.float32)
        flux[rng.random(OBJECTS) < 0.01] = 1e-38
        flux[rng.random(OBJECTS) < 0.01] = 0.0
        flux[rng.random(OBJECTS) < 0.01] *= -1.0
        values[f"{band}Flux_PS"] = with_nulls(rng, flux, 0.05).astype(np.float32)
    values["flags"] = rng.integers(0, 16, OBJECTS)
    values["extendedness"] = with_nulls(rng, rng.choice([0.0, 0.5, 1.0], OBJECTS), 0.1).astype(np.float32)
    values["nObs"] = [None if n == 7 else int(n) - 3 for n in rng.integers(0, 60, OBJECTS)]
    start = datetime.datetime(2010, 1, 1)
    seconds = rng.integers(0, 10 * 365 * 86_400, OBJECTS)
    values["lastSeen"] = [None if n % 11 == 0 else start + datetime.timedelta(seconds=int(n)) for n in seconds]
    values["name"] = [TEXTS[n] for n in rng.integers(0, len(TEXTS), OBJECTS)]
    return table("Object", types, values)


def source_keys(rng: np.random.Generator, objects: TableData) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For each source its object's key, that object's position, and whether the key is NULL."""
    keys = objects.rows["objectId"].to_numpy()
    ra, dec = objects.rows["ra_PS"].to_numpy(), objects.rows["decl_PS"].to_numpy()
    owner = np.repeat(np.arange(OBJECTS), rng.poisson(SOURCES_PER_OBJECT, OBJECTS))
    orphan = np.repeat(np.arange(400, dtype=np.int64), rng.integers(1, 7, 400))
    orphan_keys = np.where(orphan % 2 == 0, -1_000_000 - orphan, 800_000_000 + orphan)
    free = len(orphan) + 300
    free_ra, free_dec = uniform_sphere(rng, free)
    all_keys = np.concatenate([keys[owner], orphan_keys, np.zeros(300, np.int64)])
    null_key = np.arange(len(all_keys)) >= len(all_keys) - 300
    order = rng.permutation(len(all_keys))
    parts = all_keys, np.concatenate([ra[owner], free_ra]), np.concatenate([dec[owner], free_dec]), null_key
    return parts[0][order], parts[1][order], parts[2][order], parts[3][order]


def make_sources(rng: np.random.Generator, objects: TableData) -> TableData:
    """The child: a few rows to an object, orphans, NULL keys, NULL positions."""
    types = {
        "sourceId": "bigint NOT NULL",
        "objectId": "bigint DEFAULT NULL",
        "ra": "double DEFAULT NULL",
        "decl": "double DEFAULT NULL",
        "taiMidPoint": "double NOT NULL",
        "psfFlux": "float DEFAULT NULL",
        "psfFluxErr": "float DEFAULT NULL",
        "filterId": "tinyint DEFAULT NULL",
    }
    keys, ra, dec, null_key = source_keys(rng, objects)
    count = len(keys)
    sigma = np.where(rng.random(count) < 0.05, 0.05, 0.1 / 3600.0)
    ra, dec = jittered(rng, ra, dec, sigma)
    nowhere = rng.choice(count, 60, replace=False)
    ra[nowhere], dec[nowhere] = np.nan, np.nan
    flux = np.power(10.0, -0.4 * (rng.uniform(17.0, 26.0, count) + 48.6))
    flux[rng.random(count) < 0.01] *= -1.0
    filters = rng.choice([0, 1, 2, 3, 4, 5, 9], count, p=[0.1, 0.2, 0.2, 0.2, 0.2, 0.08, 0.02])
    no_filter = rng.random(count) < 0.01
    values: dict[str, object] = {
        "sourceId": 29_710_000_000 + rng.permutation(count) * 3,
        "objectId": pa.array(keys, mask=null_key),
        "ra": ra,
        "decl": dec,
        "taiMidPoint": 50_000.0 + np.round(rng.uniform(0.0, 3650.0, count), 6),
        "psfFlux": with_nulls(rng, flux, 0.03).astype(np.float32),
        "psfFluxErr": with_nulls(rng, np.abs(flux) * rng.uniform(0.01, 0.2, count), 0.02).astype(np.float32),
        "filterId": pa.array(filters.astype(np.int8), mask=no_filter),
    }
    return table("Source", types, values)


def make_references(rng: np.random.Generator, objects: TableData) -> tuple[TableData, np.ndarray]:
    """The second director, and for each of its rows the row of Object beside it (-1: none)."""
    types = {
        "refId": "bigint NOT NULL",
        "ra": "double NOT NULL",
        "decl": "double NOT NULL",
        "rMag": "double DEFAULT NULL",
        "isStar": "tinyint NOT NULL",
        "sedName": "varchar(40) DEFAULT NULL",
    }
    ra, dec = objects.rows["ra_PS"].to_numpy(), objects.rows["decl_PS"].to_numpy()
    edge = np.flatnonzero(np.abs(dec / 10.0 - np.round(dec / 10.0)) < 4e-5)
    others = rng.choice(OBJECTS, 5_000, replace=False)
    beside = np.unique(np.concatenate([edge, others]))
    near_ra, near_dec = jittered(rng, ra[beside], dec[beside], np.full(len(beside), 0.7 / 3600.0))
    far_ra, far_dec = uniform_sphere(rng, REFERENCES - len(beside))
    beside = np.concatenate([beside, np.full(REFERENCES - len(beside), -1)])
    keys = rng.permutation(5_000_000 + np.arange(REFERENCES, dtype=np.int64))
    keys[:3] = [-5, 0, 1_000_007]
    values: dict[str, object] = {
        "refId": keys,
        "ra": np.concatenate([near_ra, far_ra]),
        "decl": np.concatenate([near_dec, far_dec]),
        "rMag": with_nulls(rng, np.round(rng.uniform(14.0, 27.0, REFERENCES), 4), 0.05),
        "isStar": rng.integers(0, 2, REFERENCES),
        "sedName": [TEXTS[n] for n in rng.integers(0, len(TEXTS), REFERENCES)],
    }
    return table("RefObject", types, values), beside


def make_matches(rng: np.random.Generator, objects: TableData, references: TableData, beside: np.ndarray) -> TableData:
    """The match table: true pairs, repeated pairs, pairs with a key that is missing or NULL on either side."""
    types = {"refId": "bigint DEFAULT NULL", "objectId": "bigint DEFAULT NULL", "score": "double NOT NULL"}
    reference_keys, object_keys_ = references.rows["refId"].to_numpy(), objects.rows["objectId"].to_numpy()
    paired = np.flatnonzero(beside >= 0)
    left, right = reference_keys[paired], object_keys_[beside[paired]]
    repeated = rng.choice(len(left), 60, replace=False)
    chosen = rng.choice(len(left), 520, replace=False)
    extra_left, extra_right = left[chosen].copy(), right[chosen].copy()
    extra_left[:200] = 77_000_000 + np.arange(200)
    extra_right[180:400] = -88_000_000 - np.arange(220)
    left = np.concatenate([left, left[repeated], extra_left])
    right = np.concatenate([right, right[repeated], extra_right])
    score = np.round(rng.random(len(left)), 6)
    score[len(paired) : len(paired) + 60] = score[repeated]
    null_left, null_right = np.zeros(len(left), bool), np.zeros(len(left), bool)
    null_left[-120:-50] = True
    null_right[-60:] = True
    order = rng.permutation(len(left))
    values: dict[str, object] = {
        "refId": pa.array(left[order], mask=null_left[order]),
        "objectId": pa.array(right[order], mask=null_right[order]),
        "score": score[order],
    }
    return table("RefMatch", types, values)


def make_filters() -> TableData:
    """The replicated table; filter 9 of Source is not in it, and filter -99 of it is not in Source."""
    types = {"filterId": "tinyint NOT NULL", "filterName": "varchar(3) NOT NULL", "photClam": "float DEFAULT NULL"}
    values: dict[str, object] = {
        "filterId": [0, 1, 2, 3, 4, 5, -99],
        "filterName": [*BANDS, "DD"],
        "photClam": np.array([375.0, 480.0, 620.0, 760.0, 870.0, 1000.0, np.nan], np.float32),
    }
    return table("Filter", types, values)


def make_catalogue(seed: int = SEED) -> dict[str, TableData]:
    """All tables by name, in an order in which they can be loaded."""
    rng = np.random.default_rng(seed)
    objects = make_objects(rng)
    sources = make_sources(rng, objects)
    references, beside = make_references(rng, objects)
    matches = make_matches(rng, objects, references, beside)
    return {made.name: made for made in (objects, sources, references, matches, make_filters())}
