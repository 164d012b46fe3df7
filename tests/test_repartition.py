"""Cutting the sky of a database anew: by a load that nothing else depends on, and by `meridian repartition`."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from comparison import difference
from complaints import assert_rejected
from meridian_cli import Meridian, Outcome, load_arguments
from serving import serving
from small_tables import CHILD, CUT, DIRECTOR, chunk_files, star_lines, write_lines, write_stars

STARS, SPOTS = 4000, 9000
CHOOSE = {name: value for name, value in DIRECTOR.items() if name not in CUT}


def partitioning(meridian: Meridian, data: Path) -> list[tuple[object, ...]]:
    """Where some stars are: other chunks for another cut."""
    return meridian.rows(data, "sky", "SELECT id, chunkId FROM Star WHERE id < 100 ORDER BY id")


# Loads.


def test_the_only_director_chooses_again(meridian: Meridian, tmp_path: Path) -> None:
    """The first load of a few rows fixed the partitioning of a database for good."""
    data = tmp_path / "data"
    first = meridian.load(data, "sky", "Star", write_stars(tmp_path / "few.csv", 5), overlap=0.25, **CHOOSE)
    assert "2 stripes" in first.text and "chosen" in first.text
    ra = np.random.default_rng(3).uniform(10, 11, 200_000)
    many = write_lines(tmp_path / "many.csv", [f"{n},{ra[n]:.6f},{ra[n] / 3:.6f},2" for n in range(len(ra))])
    again = meridian.load(data, "sky", "Star", many, replace=True, **CHOOSE)
    assert "chosen for these rows" in again.text and " 2 stripes" not in again.text, again.text
    assert "overlap 0.2500" in again.text
    spots = write_lines(tmp_path / "Spot.csv", ["1,1,2"], header="spot,id,flux")
    meridian.load(data, "sky", "Spot", spots, **CHILD)
    kept = meridian.load(data, "sky", "Star", write_stars(tmp_path / "f.csv", 5), replace=True, **CHOOSE)
    assert "as given" in kept.text and " 2 stripes" not in kept.text
    outcome = meridian.run(*load_arguments(data, "sky", "Star", many, replace=True, stripes=9, **CHOOSE))
    assert_rejected(outcome, "stripes", "meridian repartition")
    meridian.must("check", "--data", data)


# All tables at once.


@pytest.fixture(scope="module")
def loaded(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of every kind: children with orphans and NULLs, pairs across edges and with unknown ends."""
    directory = tmp_path_factory.mktemp("repartition")
    data = directory / "data"
    rng = np.random.default_rng(8)
    lines = star_lines(STARS, 1)
    meridian.load(data, "sky", "Star", write_lines(directory / "Star.csv", lines), **DIRECTOR)
    keys = rng.integers(0, STARS + 300, SPOTS)
    spots = [f"{n},{'' if n % 50 == 0 else keys[n]},{rng.uniform():.6f},{n * 37 % 360},{n % 170 - 85}" for n in range(SPOTS)]
    path = write_lines(directory / "Spot.csv", spots, header="spot,id,flux,ra,dec")
    meridian.load(data, "sky", "Spot", path, ra="ra", dec="dec", order="flux", **CHILD)
    more = write_lines(directory / "More.csv", [f"{n},{n % (STARS + 500)}" for n in range(6000)], header="more,id")
    meridian.load(data, "sky", "More", more, **CHILD)
    pairs = [f"{n},{n if n % 7 else STARS + 9},{n / 9}" for n in range(2000)]
    pairs += [f"{STARS + 50},{STARS + 60},0.5"]
    path = write_lines(directory / "Pairs.csv", pairs, header="left_id,right_id,sep")
    meridian.load(data, "sky", "Pairs", path, kind="match", director="Star,Star", key="left_id,right_id")
    path = write_lines(directory / "Filter.csv", ["1,u", "2,g"], header="f,name")
    meridian.load(data, "sky", "Filter", path)
    return data


@pytest.fixture
def data(loaded: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    return Path(shutil.copytree(loaded, tmp_path / "data"))


QUERIES = [
    "SELECT * FROM Star",
    "SELECT * FROM Spot",
    "SELECT * FROM More",
    "SELECT * FROM Pairs",
    "SELECT * FROM Filter",
    "SELECT count(*), sum(t.version) FROM Spot s JOIN Star t ON s.id = t.id",
    "SELECT t.id, count(*), sum(s.flux) FROM Star t LEFT JOIN Spot s ON s.id = t.id GROUP BY t.id",
    "SELECT count(*) FROM Spot s JOIN More m ON s.id = m.id",
    "SELECT count(*), sum(sep) FROM Pairs p JOIN Star a ON p.left_id = a.id JOIN Star b ON p.right_id = b.id",
    "SELECT id FROM Star WHERE scisql_s2PtInCircle(ra, dec, 100, 20, 15) = 1",
    "SELECT spot FROM Spot WHERE scisql_s2PtInCircle(ra, dec, 100, 20, 15) = 1",
    "SELECT a.id, b.id FROM Star a, Star b WHERE scisql_angSep(a.ra, a.dec, b.ra, b.dec) < 0.8 AND a.id < b.id",
    f"SELECT spot FROM Spot WHERE id IN (17, {STARS + 20}, 2500)",
    "SELECT count(*), count(id) FROM Spot",
]


def answers(meridian: Meridian, data: Path) -> list[list[tuple[object, ...]]]:
    """What all queries give."""
    return [meridian.rows(data, "sky", query) for query in QUERIES]


def repartition(meridian: Meridian, data: Path, **options: object) -> Outcome:
    """Runs the command."""
    arguments: list[object] = ["repartition", "--data", data, "--db", "sky"]
    for name, value in options.items():
        arguments.append(f"--{name.replace('_', '-')}={value}")
    return meridian.run(*arguments)


@pytest.mark.parametrize(
    "cut", [{"stripes": 11, "sub_stripes": 3}, {"stripes": 2, "sub_stripes": 1, "overlap": 1.5}, {}], ids=str
)
def test_answers_stay(meridian: Meridian, data: Path, cut: dict[str, object]) -> None:
    before, places = answers(meridian, data), partitioning(meridian, data)
    ordered = meridian.rows(data, "sky", "SELECT spot FROM Spot WHERE id = 17")
    outcome = repartition(meridian, data, **cut)
    assert outcome.status == 0, outcome.complaint
    assert "sky is repartitioned" in outcome.text and "4,000 rows" in outcome.text
    assert partitioning(meridian, data) != places
    for query, was, now in zip(QUERIES, before, answers(meridian, data), strict=True):
        differs = difference(now, was)
        assert differs is None, f"{query}: {differs}"
    assert meridian.rows(data, "sky", "SELECT spot FROM Spot WHERE id = 17") == ordered, "the order within an object"
    meridian.must("check", "--data", data)
    assert len(list(data.glob("tables/*/*"))) == 5, "the old files are gone"
    if cut:
        again = repartition(meridian, data, **cut)
        assert again.status == 0 and "already" in again.text and "Nothing was done" in again.text


PHASES = ["begun", "read", "partitioned", "index-written", "chunks-written", "overlap-written", "manifest-written", "before-publish"]


def test_a_killed_run_leaves_the_old_tables(meridian: Meridian, data: Path) -> None:
    places = partitioning(meridian, data)
    arguments = ["repartition", "--data", data, "--db", "sky", "--stripes", 9, "--sub-stripes", 2]
    failed = meridian.run(*arguments, env={"MERIDIAN_FAULT": "before-publish:error"})
    assert_rejected(failed, "before-publish")
    assert len(list(data.glob("tables/*/*"))) == 5, "a run that fails leaves nothing"
    for phase in [f"{phase}:kill" for phase in PHASES]:
        assert meridian.run(*arguments, env={"MERIDIAN_FAULT": phase}).status != 0
        assert partitioning(meridian, data) == places, phase
    outcome = meridian.run(*arguments)
    assert outcome.status == 0, outcome.complaint
    assert partitioning(meridian, data) != places
    assert len(list(data.glob("tables/*/*"))) == 5, "what the killed runs left is gone"
    meridian.must("check", "--data", data)


def test_a_run_killed_after_publication_is_done(meridian: Meridian, data: Path) -> None:
    arguments = ["repartition", "--data", data, "--db", "sky", "--stripes", 9, "--sub-stripes", 2]
    before = answers(meridian, data)
    meridian.run(*arguments, env={"MERIDIAN_FAULT": "after-publish:kill"})
    for was, now in zip(before, answers(meridian, data), strict=True):
        assert difference(now, was) is None
    meridian.must("check", "--data", data)


def test_killed_at_any_moment(meridian: Meridian, data: Path) -> None:
    join = QUERIES[6]
    before = meridian.rows(data, "sky", join)
    for round_ in range(4):
        process = meridian.start("repartition", "--data", data, "--db", "sky", "--stripes", 5 + round_, "--sub-stripes", 2)
        time.sleep(0.2 + 0.5 * round_)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert difference(meridian.rows(data, "sky", join), before) is None
    meridian.must("check", "--data", data)


def test_a_server_goes_on(meridian: Meridian, data: Path) -> None:
    """Every answer while the tables change is the right one."""
    join = "SELECT count(*), sum(t.version) FROM sky.Spot s JOIN sky.Star t ON s.id = t.id"
    seen: set[object] = set()
    stop = threading.Event()
    with serving(meridian, data) as server:

        def execute() -> None:
            with server.connect() as connection, connection.cursor() as cursor:
                while not stop.is_set():
                    cursor.execute(join)
                    seen.add(cursor.fetchall())

        thread = threading.Thread(target=execute)
        thread.start()
        try:
            for stripes in (9, 4, 13):
                outcome = repartition(meridian, data, stripes=stripes, sub_stripes=2)
                assert outcome.status == 0, outcome.complaint
        finally:
            stop.set()
            thread.join()
    assert len(seen) == 1, seen


def test_what_cannot_be_done_is_said(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    for options, words in (
        ({"stripes": 0}, ["stripe"]),
        ({"stripes": 100_000_000}, ["stripe"]),
        ({"overlap": 11}, ["overlap", "10 degrees"]),
        ({"overlap": -1}, ["overlap"]),
    ):
        assert_rejected(repartition(meridian, data, **options), *words)
    arguments = ["repartition", "--data", data, "--db"]
    assert_rejected(meridian.run(*arguments, "sk"), "no database", '"sky"')
    assert_rejected(meridian.run("repartition", "--data", tmp_path / "none", "--db", "sky"), "holds no Meridian data")
    path = write_lines(tmp_path / "Plain.csv", ["1"], header="a")
    meridian.load(data, "plain", "Plain", path)
    assert_rejected(meridian.run(*arguments, "plain"), "no partitioned table")
    places = partitioning(meridian, data)
    chunk = max((path for path in chunk_files(data) if "spot" in str(path)), key=lambda path: path.stat().st_size)
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 0x10
    chunk.write_bytes(bytes(content))
    assert_rejected(repartition(meridian, data, stripes=9), "damaged", chunk.name)
    assert partitioning(meridian, data) == places


def test_pairs_wider_than_the_new_overlap_are_not_lost(meridian: Meridian, tmp_path: Path) -> None:
    data = tmp_path / "data"
    stars = write_lines(tmp_path / "Star.csv", ["1,10,10.0,1", "2,10,10.4,1"])
    meridian.load(data, "sky", "Star", stars, **DIRECTOR)
    path = write_lines(tmp_path / "Pairs.csv", ["1,2"], header="a,b")
    meridian.load(data, "sky", "Pairs", path, kind="match", director="Star,Star", key="a,b")
    outcome = repartition(meridian, data, stripes=300, sub_stripes=10, overlap=0.01)
    assert_rejected(outcome, "wider than the overlap", "Pairs")
    assert meridian.rows(data, "sky", "SELECT * FROM Pairs") == [(1, 2)]


def test_help(meridian: Meridian) -> None:
    told = meridian.must("repartition", "--help").text
    for words in ("--stripes", "--sub-stripes", "--overlap", "never a mixture"):
        assert words in told
