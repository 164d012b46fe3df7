"""Made catalogues: what is written and what is loaded are the same rows, parts are parts of the whole, and nothing is half
done."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import duckdb
import pytest

from complaints import assert_rejected
from meridian_cli import Meridian

GENERATE = ("synthesize", "generate", "--quiet")
UNSEEDED = ("--objects", 3000, "--density", 300, "--epochs", 4, "--forced-epochs", 3)
SMALL = (*UNSEEDED, "--seed", 7)

# What tells two tables apart: counts, sums of numbers, the extremes of positions.
SUMMARIES = {
    "Object": "count(*), sum(objectId), avg(ra_PS), min(decl_PS), max(decl_PS), sum(CAST(rFlux_PS AS DOUBLE)), "
    "count(uFlux_PS), sum(flags), sum(CAST(extendedness AS DOUBLE))",
    "Source": "count(*), count(DISTINCT sourceId), sum(objectId), avg(taiMidPoint), avg(decl), "
    "sum(CAST(psfFlux AS DOUBLE)), sum(CAST(psfFluxErr AS DOUBLE)), sum(filterId)",
    "ForcedSource": "count(*), count(DISTINCT exposureId), sum(objectId), avg(taiMidPoint), "
    "sum(CAST(psfFlux AS DOUBLE)), sum(filterId)",
}


def files(directory: Path) -> dict[str, bytes]:
    """Every file below a directory by its relative name."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def of_parquet(directory: Path, query: str) -> list[tuple[object, ...]]:
    """DuckDB's answer on the Parquet files of the tables, each `{Table}` of the query."""
    tables = {name: f"read_parquet('{directory}/{name}/*.parquet')" for name in SUMMARIES}
    return duckdb.sql(query.format(**tables)).fetchall()


@pytest.fixture(scope="module")
def written(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small catalogue as Parquet."""
    out = tmp_path_factory.mktemp("written") / "small"
    meridian.must(*GENERATE, *SMALL, "--out", out)
    return out


@pytest.fixture(scope="module")
def loaded(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small catalogue in a database."""
    data = tmp_path_factory.mktemp("loaded") / "data"
    meridian.must(*GENERATE, *SMALL, "--data", data, "--db", "sky")
    return data


@pytest.mark.parametrize("table", SUMMARIES)
def test_files_and_database_have_the_same_rows(meridian: Meridian, written: Path, loaded: Path, table: str) -> None:
    ours = meridian.rows(loaded, "sky", f"SELECT {SUMMARIES[table]} FROM {table}")[0]
    theirs = of_parquet(written, f"SELECT {SUMMARIES[table]} FROM {{{table}}}")[0]
    assert ours == pytest.approx(theirs, rel=1e-12)


def test_light_curves_are_whole(meridian: Meridian, loaded: Path) -> None:
    query = (
        "SELECT count(*), min(n), max(n) FROM (SELECT o.objectId, count(*) AS n FROM Object o "
        "JOIN Source s ON o.objectId = s.objectId GROUP BY o.objectId)"
    )
    assert meridian.rows(loaded, "sky", query) == [(3000, 4, 4)]
    assert meridian.must("check", "--data", loaded)


def test_chunks_alone_make_the_whole(meridian: Meridian, written: Path, tmp_path: Path) -> None:
    chunks = sorted(int(path.stem.removeprefix("chunk_")) for path in (written / "Object").iterdir())
    for chunk in chunks:
        meridian.must(*GENERATE, *SMALL, "--out", tmp_path / "parts", "--chunk", chunk)
    assert files(tmp_path / "parts") == files(written)
    outcome = meridian.run(*GENERATE, *SMALL, "--out", tmp_path / "none", "--chunk", 1)
    assert_rejected(outcome, "no rows in chunk 1", str(chunks[0]))


def test_seed_and_threads(meridian: Meridian, written: Path, tmp_path: Path) -> None:
    meridian.must(*GENERATE, *SMALL, "--out", tmp_path / "one", "--threads", 1)
    assert files(tmp_path / "one") == files(written)
    meridian.must(*GENERATE, *UNSEEDED, "--seed", 8, "--out", tmp_path / "other", "--tables", "Object")
    assert not set(files(tmp_path / "other").values()) & set(files(written).values())


def test_files_in_the_way(meridian: Meridian, tmp_path: Path) -> None:
    small = ("--objects", 100, "--epochs", 0, "--out", tmp_path / "out")
    meridian.must(*GENERATE, *small)
    assert_rejected(meridian.run(*GENERATE, *small), "files already", "--replace")
    before = files(tmp_path / "out")
    meridian.must(*GENERATE, *small, "--replace")
    assert files(tmp_path / "out") == before
    note = tmp_path / "out" / "Object" / "notes.txt"
    note.write_text("mine")
    assert_rejected(meridian.run(*GENERATE, *small, "--replace"), "notes.txt")
    assert note.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--objects", 100, "--bands", "ugx"), ("not a band", "ugrizy")),
        (("--objects", 100, "--density", 0), ("density of 0 is not possible",)),
        (("--objects", 100, "--density", "0.001"), ("whole sky",)),
        (("--objects", 100, "--density", 5, "--region", "box 0 0 1 1"), ("give two of",)),
        (("--objects", 100, "--columns", "objectId,flux"), ('no column "flux"', "uFlux_PS")),
        (("--objects", 100, "--tables", "Sauce"), ("Sauce", "Source")),
        ((), ("how many objects",)),
    ],
)
def test_impossible_wishes(
    meridian: Meridian, tmp_path: Path, options: tuple[object, ...], words: tuple[str, ...]
) -> None:
    assert_rejected(meridian.run(*GENERATE, *options, "--out", tmp_path / "out"), *words)


def test_nowhere_to_write(meridian: Meridian) -> None:
    assert_rejected(meridian.run(*GENERATE, "--objects", 100), "--out", "--data")


def test_negative_rows(meridian: Meridian, tmp_path: Path) -> None:
    outcome = meridian.run(*GENERATE, "--objects", -5, "--out", tmp_path / "out")
    assert outcome.status == 2
    assert "give a whole number" in outcome.stderr


def test_interrupted_files_are_whole(meridian: Meridian, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = meridian.start(*GENERATE, "--objects", 20_000_000, "--stripes", 85, "--out", out)
    deadline = time.monotonic() + 60
    while not list(out.glob("Object/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"stopped as asked" in said
    finished = files(out)
    assert finished and all(name.endswith(".parquet") for name in finished)
    assert of_parquet(out, "SELECT count(*) > 0 FROM {Object}") == [(True,)]


def test_full_disk(meridian: Meridian, tiny_disk: Path) -> None:
    outcome = meridian.run(*GENERATE, "--objects", 200_000, "--out", tiny_disk / "out")
    assert_rejected(outcome, "disk is full")
    assert all(name.endswith(".parquet") for name in files(tiny_disk / "out"))


def test_copies(meridian: Meridian, written: Path, tmp_path: Path) -> None:
    """Copies over a cap of the sky have the density of the patch, and the columns that are not moved."""
    duplicate = (
        "synthesize", "duplicate", "--quiet", "--director", written / "Object", "--key", "objectId",
        "--ra", "ra_PS", "--dec", "decl_PS", "--child", f"Source={written / 'Source'}:objectId,ra,decl,sourceId",
        "--child", f"ForcedSource={written / 'ForcedSource'}:objectId", "--region", "circle 0 90 3",
    )  # fmt: skip
    said = meridian.must(*duplicate, "--data", tmp_path / "data", "--db", "copies").text
    assert "copies of the patch's 3000 rows" in said
    meridian.must(*duplicate, "--out", tmp_path / "files")
    for table, keys in [("Object", "objectId"), ("Source", "sourceId"), ("ForcedSource", "objectId")]:
        query = f"SELECT count(*), count(DISTINCT {keys}) FROM "
        ours = meridian.rows(tmp_path / "data", "copies", query + table)
        assert ours == of_parquet(tmp_path / "files", query + f"{{{table}}}")
    counts = meridian.rows(
        tmp_path / "data",
        "copies",
        "SELECT count(*), count(DISTINCT o.objectId), max(scisql_angSep(o.ra_PS, o.decl_PS, s.ra, s.decl)) < 1e-3, "
        "min(o.decl_PS) >= 87 FROM Object o JOIN Source s ON o.objectId = s.objectId",
    )[0]
    objects = counts[1]
    assert counts == (4 * objects, objects, True, True)
    # 28.27 square degrees at 300 objects each, in clumps.
    assert objects == pytest.approx(8480, rel=0.15)
    fluxes = of_parquet(tmp_path / "files", "SELECT count(DISTINCT rFlux_PS) FROM {Object}")[0][0]
    assert 2000 < fluxes <= 3000
    assert_rejected(
        meridian.run(*duplicate[:7], "--ra", "ra", *duplicate[9:], "--out", tmp_path / "none"), 'no column "ra"', "ra_PS"
    )
