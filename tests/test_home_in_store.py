"""`meridian home`: chunk files in an object store, with a cache here: the same answers, whatever breaks off, and no file that is nowhere."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pymysql
import pytest

from complaints import assert_rejected
from meridian_cli import Meridian, Outcome
from object_store import Fault, Request, Store, object_store, once_each
from serving import Server, serving, wait_until
from small_tables import chunk_files, star_lines, write_lines
from test_cluster import execute

CERTIFICATES = Path(__file__).parent / "certificates"
DIRECTOR = {"kind": "director", "key": "id", "ra": "ra", "dec": "dec", "stripes": 3, "sub_stripes": 4, "overlap": 0.5}
# Chunks of more than a block each, so that they have files of their own, and a part of small ones that share a file.
STARS, MORE_STARS, VISITS = 120_000, 4_000, 120_000
# Doubles that do not compress, in one file, which is read in several ranges.
FLUXES = 150_000
STATEMENTS = [
    "SELECT COUNT(*), SUM(version), AVG(ra), MIN(`dec`), STDDEV(ra * `dec`) FROM Star",
    "SELECT s.id % 7 AS d, COUNT(*), SUM(v.flux) FROM Star s JOIN Visit v ON s.id = v.id GROUP BY d ORDER BY d",
    "SELECT COUNT(*), MIN(scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`)) FROM Star a, Star b"
    " WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < 0.3 AND a.id < b.id AND qserv_areaspec_circle(120, 10, 15)",
    "SELECT id, ra FROM Star ORDER BY ra DESC, id LIMIT 50",
    "SELECT COUNT(*), SUM(a), MIN(b), MAX(a * b) FROM Flux",
    "SELECT id, a FROM Flux WHERE id IN (3, 77777, 149999) ORDER BY id",
    "SELECT id, ra, `dec` FROM Star WHERE id IN (77, 21001, 32000) ORDER BY id",
    "SELECT visit, flux FROM Visit WHERE id = 1234 ORDER BY visit",
    "SELECT id, version FROM Star WHERE qserv_areaspec_circle(200, -30, 2) ORDER BY id",
]
Answers = dict[str, list[tuple[object, ...]]]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with object_store(CERTIFICATES) as store:
        yield store


@pytest.fixture(autouse=True)
def environment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in store.environment().items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)


def append(meridian: Meridian, data: Path, table: str, path: Path) -> None:
    meridian.load(data, "sky", table, path, append=True)


@pytest.fixture(scope="module")
def original(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose files are here: stars in two parts, visits of them, pairs, and fluxes."""
    directory = tmp_path_factory.mktemp("archive")
    data = directory / "data"
    lines = star_lines(STARS + MORE_STARS, 1)
    meridian.load(data, "sky", "Star", write_lines(directory / "stars.csv", lines[:STARS]), **DIRECTOR)
    append(meridian, data, "Star", write_lines(directory / "more.csv", lines[STARS:]))
    rng = np.random.default_rng(8)
    stars, flux = rng.integers(0, STARS, VISITS), rng.uniform(0.0, 100.0, VISITS)
    visits = [f"{number},{stars[number]},{flux[number]:.6f}" for number in range(VISITS)]
    path = write_lines(directory / "visits.csv", visits, "visit,id,flux")
    meridian.load(data, "sky", "Visit", path, kind="child", key="id", director="Star")
    values = rng.uniform(0.0, 1.0, (FLUXES, 2))
    fluxes = [f"{number},{values[number, 0]!r},{values[number, 1]!r}" for number in range(FLUXES)]
    fluxes = [line.replace("np.float64(", "").replace(")", "") for line in fluxes]
    meridian.load(data, "sky", "Flux", write_lines(directory / "flux.csv", fluxes, "id,a,b"), kind="replicated")
    return data


@pytest.fixture(scope="module")
def expected(meridian: Meridian, original: Path) -> Answers:
    """What is answered without a home."""
    with serving(meridian, original) as server:
        return {statement: execute(server, statement) for statement in STATEMENTS}


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    """A copy of the data directory for each test."""
    return Path(shutil.copytree(original, tmp_path / "data"))


@pytest.fixture
def place(store: Store, tmp_path: Path) -> str:
    """A place of its own for each test."""
    return f"s3://{store.BUCKET}/homes/{tmp_path.name}"


def home(meridian: Meridian, data: Path, word: str, *words: object, **variables: str) -> Outcome:
    return meridian.run("home", word, *words, "--data", data, env=variables)


def told(outcome: Outcome) -> str:
    assert outcome.status == 0, outcome.complaint
    return outcome.text


def move_home(meridian: Meridian, data: Path, place: str, cache: str = "0") -> None:
    """Sets the home, and copies all files there."""
    told(home(meridian, data, "set", place, "--cache", cache))
    told(home(meridian, data, "push"))


def status(meridian: Meridian, data: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(told(home(meridian, data, "status", "--format", "json")))
    return found


def counted(meridian: Meridian, data: Path) -> dict[str, int]:
    return {name: it["files"] for name, it in status(meridian, data).items() if isinstance(it, dict)}


def keys(store: Store, place: str) -> set[str]:
    """The chunk files that the store has, by their names within the data directory."""
    prefix = place.split("/", 3)[3] + "/"
    names = {key.removeprefix(prefix).partition("/")[2] for key in store.keys(prefix)}
    return {name for name in names if name.startswith("tables/")}


def names_of(data: Path) -> set[str]:
    """The chunk files that there are of the parts that have directories, here or at home."""
    found = [*data.glob("tables/*/*/chunk_*.mrd"), *data.glob("tables/*/*/chunk_*.home")]
    return {str(path.with_suffix(".mrd").relative_to(data)) for path in found}


def here(data: Path) -> set[Path]:
    """The chunk files that are here, which may come and go meanwhile, with their directories: `glob` fails where one goes."""
    while True:
        try:
            return set(data.glob("tables/*/*/chunk_*.mrd"))
        except FileNotFoundError:
            continue


def check_all(server: Server, expected: Answers) -> None:
    for statement, rows in expected.items():
        assert execute(server, statement) == rows, statement


def assert_same(meridian: Meridian, data: Path, expected: Answers) -> None:
    """Each statement, answered by a process that has nothing in its memory."""
    with serving(meridian, data) as server:
        check_all(server, expected)


def assert_whole(meridian: Meridian, data: Path) -> None:
    outcome = meridian.run("check", "--data", data)
    assert outcome.status == 0, outcome.complaint


@contextmanager
def asking(server: Server, expected: Answers) -> Iterator[list[object]]:
    """Asks again and again beside whatever is done; what was not right is listed."""
    stop, wrong = threading.Event(), []  # type: ignore[var-annotated]

    def ask() -> None:
        while not stop.is_set():
            for statement, rows in expected.items():
                try:
                    found: object = execute(server, statement)
                except pymysql.err.Error as error:
                    found = error
                if found != rows:
                    wrong.append((statement, found))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield wrong
    finally:
        stop.set()
        thread.join()


def is_range(request: Request) -> bool:
    """A read of a chunk file."""
    return request.method == "GET" and request.key.endswith(".mrd")


@pytest.mark.parametrize("cache", ["0", "1M", "all"])
def test_answers_are_those_of_files_that_are_here(
    meridian: Meridian, store: Store, data: Path, place: str, expected: Answers, cache: str
) -> None:
    before = names_of(data)
    others = {path for path in data.glob("tables/**/*") if "chunk_" not in path.name}
    move_home(meridian, data, place, cache)
    files = counted(meridian, data)
    assert keys(store, place) == before and len(before) > 10
    assert files["at_home"] == len(before) and files["not_at_home"] == 0
    here = sum(path.stat().st_size for path in chunk_files(data))
    match cache:
        case "0":
            assert files["here"] == 0 == here
        case "1M":
            assert 0 < files["here"] < len(before) and 0 < here <= 1 << 20
        case _:
            assert files["here"] == files["cached"] == len(before)
    # Everything else stays.
    assert others <= {path for path in data.glob("tables/**/*")}
    count = len(store.proxy.requests)
    with serving(meridian, data) as server:
        check_all(server, expected)
        check_all(server, expected)
    assert bool([request for request in store.since(count) if is_range(request)]) == (cache != "all")
    # So does the command line, and finds rows by their keys.
    (row,) = meridian.rows(data, "sky", "SELECT count(*), sum(version) FROM Star")
    assert row == (STARS + MORE_STARS, STARS + MORE_STARS)
    assert len(meridian.rows(data, "sky", "SELECT id FROM Star WHERE id IN (77, 21001, 32000)")) == 3
    assert_whole(meridian, data)
    text = told(home(meridian, data, "status"))
    assert place in text and "can be used" in text
    told(home(meridian, data, "unset"))
    assert names_of(data) == before == keys(store, place)
    assert not list(data.glob("tables/*/*/*.home")) and not list(data.glob("meridian.home"))
    assert len(chunk_files(data)) == len(before)
    assert_whole(meridian, data)


def test_files_that_are_read_for_the_most_part_come_back_while_there_is_room(
    meridian: Meridian, store: Store, data: Path, place: str, expected: Answers
) -> None:
    move_home(meridian, data, place)
    with serving(meridian, data) as server:
        check_all(server, expected)
        time.sleep(1)
        assert not chunk_files(data), "the cache has no room"
        told(home(meridian, data, "set", place, "--cache", "all"))
    all_files = len(names_of(data))
    with serving(meridian, data) as server:
        check_all(server, expected)
        wait_until(lambda: len(here(data)) == all_files, 60, "all files are here")
        # What is open is read here from now on.
        with store.faults(lambda request: Fault(status=503) if is_range(request) else None):
            check_all(server, expected)
    count = len(store.proxy.requests)
    with serving(meridian, data) as server:
        check_all(server, expected)
    assert not [request for request in store.since(count) if is_range(request)]
    assert_whole(meridian, data)


def test_the_copies_go_first_that_were_read_least_recently(meridian: Meridian, data: Path, place: str, expected: Answers) -> None:
    move_home(meridian, data, place, "all")
    long_ago = time.time() - 86_400
    for mark in data.glob("tables/*/*/*.home"):
        os.utime(mark, (long_ago, long_ago))
    (row,) = meridian.rows(data, "sky", "SELECT count(*) FROM Visit WHERE flux > 3")
    read = {path for path in chunk_files(data) if path.parent.parent.name == "sky.visit"}
    size = sum(path.stat().st_size for path in read)
    told(home(meridian, data, "set", place, "--cache", str(size)))
    told(home(meridian, data, "push"))
    assert set(chunk_files(data)) == read
    # Those that were read long ago make room for one that is read now; others do not.
    flux = next(path for path in data.glob("tables/sky.flux/*/*.home"))
    length = json.loads(flux.read_text())["bytes"]
    assert length > size // 4
    with serving(meridian, data) as server:
        execute(server, STATEMENTS[4])
        time.sleep(2)
        assert set(chunk_files(data)) == read
        # A server looks at a star when it starts, for its example.
        told(home(meridian, data, "set", place, "--cache", str(max(size, length) + 600_000)))
        for path in read:
            os.utime(path.with_suffix(".home"), (long_ago, long_ago))
    with serving(meridian, data) as server:
        assert execute(server, STATEMENTS[4]) == expected[STATEMENTS[4]]
        wait_until(lambda: flux.with_suffix(".mrd").exists(), 30, "it has come")
    assert sum(path.stat().st_size for path in chunk_files(data)) <= max(size, length) + 600_000
    assert read - here(data)
    assert_whole(meridian, data)


def test_a_server_copies_what_is_published_and_reads_on(
    meridian: Meridian, store: Store, data: Path, place: str, expected: Answers, tmp_path: Path
) -> None:
    with serving(meridian, data, "--home-rate", "none") as server, asking(server, expected) as wrong:
        told(home(meridian, data, "set", place, "--cache", "0"))
        wait_until(lambda: not here(data), 60, "all files are at home")
        # Another process loads.
        lines = [f"{number},{number % 360},5" for number in range(900)]
        meridian.load(data, "sky", "New", write_lines(tmp_path / "new.csv", lines, "id,a,b"), kind="replicated")
        wait_until(lambda: not here(data) and any("sky.new/" in key for key in keys(store, place)), 60, "it is at home")
        assert execute(server, "SELECT COUNT(*), SUM(a) FROM New") == [(900, sum(n % 360 for n in range(900)))]

        def holds_removed_files() -> bool:
            for link in Path(f"/proc/{server.process.pid}/fd").iterdir():
                with suppress(FileNotFoundError):
                    if os.readlink(link).endswith(".mrd (deleted)"):
                        return True
            return False

        wait_until(lambda: not holds_removed_files(), 60, "what was given up is closed")
        # And the way back, while queries go on.
        told(home(meridian, data, "unset", "--delete-objects"))
        assert not store.keys(place.split("/", 3)[3] + "/")
        time.sleep(2)
    assert not wrong, wrong[:3]
    assert_whole(meridian, data)


def changed(meridian: Meridian, data: Path, directory: Path) -> Answers:
    """Loads, appends, drops and compacts; gives what is answered afterwards."""
    first = STARS + MORE_STARS
    lines = [f"{first + n},{n * 0.7 % 360},{n % 80},5" for n in range(700)]
    append(meridian, data, "Star", write_lines(directory / "new.csv", lines))
    visits = [f"{10**6 + n},{n * 40},1.5" for n in range(800)]
    append(meridian, data, "Visit", write_lines(directory / "visits.csv", visits, "visit,id,flux"))
    pairs = write_lines(directory / "pairs.csv", [f"{n},{n}" for n in range(0, STARS, 77)], "left_id,right_id")
    meridian.load(data, "sky", "Pair", pairs, kind="match", director="Star,Star", key="left_id,right_id")
    meridian.must("drop", "table", "--yes", "--db", "sky", "--table", "Flux", "--data", data)
    meridian.must("compact", "--data", data, "--db", "sky", "--all", "--rate", "none")
    queries = [STATEMENTS[0], STATEMENTS[1], STATEMENTS[2], "SELECT COUNT(*), SUM(left_id) FROM Pair"]
    with serving(meridian, data) as server:
        return {query: execute(server, query) for query in queries}


def test_loads_drops_and_compactions_work_on_files_at_home(
    meridian: Meridian, store: Store, original: Path, data: Path, place: str, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    without = changed(meridian, Path(shutil.copytree(original, tmp_path / "without")), tmp_path / "here")
    move_home(meridian, data, place)
    before = keys(store, place)
    foreign = store.put(f"{place.split('/', 3)[3]}/mine.txt", b"of somebody else")
    assert changed(meridian, data, tmp_path) == without
    assert_whole(meridian, data)
    told(home(meridian, data, "push"))
    # Queries of the test are over, so that nobody holds what was replaced.
    assert keys(store, place) == names_of(data) and not before & keys(store, place)
    assert store.get(foreign.split("/", 3)[3]) == b"of somebody else"
    assert not chunk_files(data)
    with serving(meridian, data) as server:
        check_all(server, without)
    assert_whole(meridian, data)
    meridian.must("drop", "database", "--yes", "--db", "sky", "--data", data)
    assert "objects of parts that are gone were removed" in told(home(meridian, data, "push"))
    assert not keys(store, place)


def slowly(_request: Request) -> None:
    """Each answer takes a while, so that kills come at all points of a command."""
    time.sleep(0.3)


def kill_after(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Kills a process after a while; whether it was still running."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    return False


def test_a_push_that_is_killed_leaves_every_file_somewhere(
    meridian: Meridian, store: Store, data: Path, place: str, expected: Answers
) -> None:
    before, seed = names_of(data), random.randrange(2**32)
    rng = random.Random(seed)
    told(home(meridian, data, "set", place, "--cache", "0"))
    killed = 0
    for _ in range(30):
        with store.faults(slowly):
            killed += kill_after(meridian.start("home", "push", "--data", data), rng.uniform(0.05, 1.5))
        assert names_of(data) == before, seed
        # Whatever has a mark is in the store.
        marked = {str(path.with_suffix(".mrd").relative_to(data)) for path in data.glob("tables/*/*/*.home")}
        assert marked <= keys(store, place), seed
        if not chunk_files(data):
            break
    assert killed >= 2, seed
    told(home(meridian, data, "push"))
    assert not chunk_files(data) and keys(store, place) == before
    assert not list(data.rglob("*.tmp"))
    assert_same(meridian, data, expected)
    assert_whole(meridian, data)


def test_an_unset_that_is_killed_leaves_every_file_somewhere(
    meridian: Meridian, store: Store, data: Path, place: str, expected: Answers
) -> None:
    before, seed = names_of(data), random.randrange(2**32)
    rng = random.Random(seed)
    move_home(meridian, data, place)
    killed = 0
    for _ in range(30):
        with store.faults(slowly):
            killed += kill_after(meridian.start("home", "unset", "--data", data), rng.uniform(0.05, 0.7))
        assert names_of(data) == before, seed
        if not list(data.glob("meridian.home")):
            break
        if json.loads((data / "meridian.home").read_text())["is_ending"]:
            assert_rejected(home(meridian, data, "push"), "coming back", "meridian home unset")
    assert killed >= 2, seed
    if list(data.glob("meridian.home")):
        told(home(meridian, data, "unset", "--delete-objects"))
        assert not keys(store, place)
    assert len(chunk_files(data)) == len(before) and not list(data.glob("tables/*/*/*.home"))
    assert not list(data.rglob("*.tmp"))
    assert_same(meridian, data, expected)
    assert_whole(meridian, data)
    # And home again.
    move_home(meridian, data, place)
    assert not chunk_files(data) and keys(store, place) == before


def test_what_a_killed_push_has_sent_is_not_sent_again(meridian: Meridian, store: Store, data: Path, place: str) -> None:
    told(home(meridian, data, "set", place))
    told(home(meridian, data, "push"))
    for mark in data.glob("tables/*/*/*.home"):
        mark.unlink()
    count = len(store.proxy.requests)
    told(home(meridian, data, "push"))
    assert not store.since(count, "PUT")
    assert counted(meridian, data)["not_at_home"] == 0


def test_copies_stay_whose_objects_are_gone_or_changed(meridian: Meridian, store: Store, data: Path, place: str, expected: Answers) -> None:
    move_home(meridian, data, place, "all")
    lost, changed_one = sorted(store.keys(place.split("/", 3)[3] + "/"))[-2:]
    store.admin.delete_object(Bucket=store.BUCKET, Key=lost)
    store.put(changed_one, b"something else")
    told(home(meridian, data, "set", place, "--cache", "0"))
    said = told(home(meridian, data, "push"))
    assert "were given up" in said
    assert len(chunk_files(data)) == 2
    assert "2 files with" in told(home(meridian, data, "push"))
    assert not chunk_files(data)
    assert_same(meridian, data, expected)


def test_a_store_that_is_down_fails_only_what_needs_it(meridian: Meridian, store: Store, data: Path, place: str, expected: Answers) -> None:
    move_home(meridian, data, place)
    told(home(meridian, data, "set", place, "--cache", "all"))
    flux = STATEMENTS[4]
    with serving(meridian, data) as server:
        assert execute(server, flux) == expected[flux]
        wait_until(lambda: bool(list(data.glob("tables/sky.flux/*/*.mrd"))), 30, "the file of the fluxes is here")
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    outcome = meridian.run("sql", "--data", data, "--db", "sky", STATEMENTS[0], env=nowhere)
    sentence = assert_rejected(outcome, "127.0.0.1:9", "cannot be reached", "meridian home status")
    assert place in sentence
    assert meridian.run("sql", "--data", data, "--db", "sky", flux, env=nowhere).status == 0
    # A key's place is in the index, which is here; the row is not.
    assert_rejected(meridian.run("sql", "--data", data, "--db", "sky", STATEMENTS[6], env=nowhere), "cannot be reached")
    found = told(home(meridian, data, "status", **nowhere))
    assert "cannot be used" in found
    problems = meridian.run("check", "--data", data, env=nowhere)
    assert problems.status != 0 and place in problems.complaint
    partly = meridian.run("check", "--data", data, "--skip-home", env=nowhere)
    assert partly.status == 0 and "were not read" in partly.text
    sentence = assert_rejected(home(meridian, data, "push", **nowhere), "cannot be reached")
    assert sentence.count("cannot be reached") == 1, sentence
    assert_rejected(home(meridian, data, "unset", **nowhere), "cannot be reached")
    told(home(meridian, data, "set", place))
    assert_same(meridian, data, expected)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(status=500, code="InternalError"), id="500"),
        pytest.param(Fault(status=503, code="SlowDown"), id="503"),
        pytest.param(Fault(cut_after=1000), id="cut"),
        pytest.param(Fault(is_lost=True), id="lost"),
        pytest.param(Fault(flipped_at=3000), id="flipped"),
    ],
)
def test_faults_that_pass_change_no_answer(
    meridian: Meridian, store: Store, data: Path, place: str, expected: Answers, fault: Fault
) -> None:
    move_home(meridian, data, place)
    with store.faults(once_each(fault, is_range)), serving(meridian, data) as server:
        check_all(server, expected)
    with store.faults(once_each(fault, is_range)):
        told(home(meridian, data, "unset"))
    assert_whole(meridian, data)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(status=500, code="InternalError"), id="500"),
        pytest.param(Fault(shortened_to=700), id="shortened"),
        pytest.param(Fault(flipped_at=3000), id="flipped"),
    ],
)
def test_faults_that_stay_are_errors_that_name_the_object(
    meridian: Meridian, store: Store, data: Path, place: str, expected: Answers, fault: Fault
) -> None:
    move_home(meridian, data, place)
    flux = STATEMENTS[4]
    with store.faults(lambda request: fault if is_range(request) else None):
        outcome = meridian.run("sql", "--data", data, "--db", "sky", flux, env={"AWS_MAX_ATTEMPTS": "2"})
        sentence = assert_rejected(outcome, "/tables/sky.flux/")
        assert place in sentence
        # Nothing that is wrong comes here.
        assert home(meridian, data, "unset", AWS_MAX_ATTEMPTS="2").status != 0
        assert not chunk_files(data) and not list(data.rglob("*.tmp"))
    told(home(meridian, data, "set", place))
    assert_same(meridian, data, {flux: expected[flux]})


def test_objects_that_somebody_changed_are_told_by_name(meridian: Meridian, store: Store, data: Path, place: str) -> None:
    move_home(meridian, data, place)
    (key,) = [key for key in store.keys(place.split("/", 3)[3] + "/") if "sky.flux" in key]
    content = store.get(key)
    few_tries = {"AWS_MAX_ATTEMPTS": "2"}
    changes = [content[:5000] + bytes([content[5000] ^ 1]) + content[5001:], content[:-5000]]
    for change in changes:
        store.put(key, change)
        # moto answers with 500 where S3 says that it is another object, and where there is none.
        assert_rejected(meridian.run("sql", "--data", data, "--db", "sky", STATEMENTS[4], env=few_tries), key)
    for status_code, code, words in [
        (412, "PreconditionFailed", "is not the object any more that was copied there"),
        (404, "NoSuchKey", "is gone from the store"),
    ]:
        fault = Fault(status=status_code, code=code)
        with store.faults(lambda request, fault=fault: fault if is_range(request) else None):  # type: ignore[misc]
            assert_rejected(meridian.run("sql", "--data", data, "--db", "sky", STATEMENTS[4], env=few_tries), key, words)
            outcome = meridian.run("check", "--data", data, env=few_tries)
            assert outcome.status != 0 and key in outcome.complaint
    assert meridian.run("sql", "--data", data, "--db", "sky", STATEMENTS[0]).status == 0


def test_homes_that_cannot_be_used_are_told_at_once(meridian: Meridian, store: Store, data: Path, place: str, tmp_path: Path) -> None:
    def refused(*words: object, url: str = place, **variables: str) -> Outcome:
        outcome = home(meridian, data, "set", url, *words, **variables)
        assert not list(data.glob("meridian.home"))
        return outcome

    assert_rejected(refused(url="https://example.org/x"), "s3://BUCKET/PREFIX")
    assert_rejected(refused(url="somewhere"), "URL")
    assert_rejected(refused(url="s3://x/y"), "bucket")
    assert_rejected(refused(url="s3://no-such-bucket/x"), "there is no bucket no-such-bucket")
    assert_rejected(refused(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY=""), "there are no credentials")
    assert_rejected(refused(AWS_ACCESS_KEY_ID=store.reader[0], AWS_SECRET_ACCESS_KEY=store.reader[1]), "denied")
    assert_rejected(refused(AWS_ENDPOINT_URL="http://127.0.0.1:9"), "cannot be reached")
    outcome = refused("--cache", "much")
    assert outcome.status == 2 and "all keeps all copies" in outcome.complaint
    assert_rejected(home(meridian, tmp_path / "nothing", "set", place), "nothing")
    for word in ("push", "unset"):
        assert_rejected(home(meridian, data, word), "have no home", "meridian home set")
    assert "have no home" in told(home(meridian, data, "status"))
    told(home(meridian, data, "set", place))
    config = data / "meridian.home"
    assert config.stat().st_mode & 0o777 == 0o640 and store.secret not in config.read_text()
    assert_rejected(home(meridian, data, "set", place + "x"), place, "meridian home unset")
    # Members of clusters, and front ends that share a catalog, know nothing of homes.
    served = meridian.run("serve", "--data", data, "--cluster", "127.0.0.1:0", "--cluster-secret", write_lines(tmp_path / "s", ["x" * 40], None))
    assert_rejected(served, "not for clusters", "meridian home unset")
    copied = meridian.run("catalog", "copy", "--data", data, "--to", "postgres://nobody@127.0.0.1:9/none")
    assert_rejected(copied, "PostgreSQL", "meridian home unset")
    told(home(meridian, data, "unset"))
    (data / "cluster.files").write_text("{}")
    assert_rejected(refused(), "cluster's front end")


def test_directories_with_one_prefix_keep_out_of_each_others_way(
    meridian: Meridian, store: Store, original: Path, data: Path, place: str, tmp_path: Path, expected: Answers
) -> None:
    other = Path(shutil.copytree(original, tmp_path / "other"))
    move_home(meridian, data, place)
    move_home(meridian, other, place)
    meridian.must("drop", "table", "--yes", "--db", "sky", "--table", "Flux", "--data", other)
    told(home(meridian, other, "push"))
    told(home(meridian, other, "unset", "--delete-objects"))
    assert_same(meridian, data, expected)
    # A copy of a directory with a home reads, and changes nothing there.
    copy = Path(shutil.copytree(data, tmp_path / "copy"))
    assert_same(meridian, copy, {STATEMENTS[0]: expected[STATEMENTS[0]]})
    meridian.must("drop", "table", "--yes", "--db", "sky", "--table", "Flux", "--data", copy)
    assert_rejected(home(meridian, copy, "push"), "was copied, or moved", "--moved")
    assert_rejected(home(meridian, copy, "set", place), "--moved")
    assert_rejected(home(meridian, copy, "unset", "--delete-objects"), "--moved")
    assert_same(meridian, data, expected)
    told(home(meridian, copy, "unset"))
    assert_whole(meridian, copy)
    # A directory that was moved to another disk says so.
    moved = Path(shutil.copytree(data, tmp_path / "moved"))
    shutil.rmtree(data)
    told(home(meridian, moved, "set", place, "--moved"))
    told(home(meridian, moved, "push"))
    assert_same(meridian, moved, expected)
    assert not chunk_files(moved), "the size of the cache is what it was"


def test_backups_have_files_that_are_at_home(meridian: Meridian, data: Path, place: str, tmp_path: Path, expected: Answers) -> None:
    move_home(meridian, data, place)
    meridian.must("backup", "--data", data, tmp_path / "backups")
    assert not chunk_files(data), "what is read once does not come into the cache"
    meridian.must("restore", "--data", tmp_path / "restored", tmp_path / "backups")
    assert not list((tmp_path / "restored").rglob("*.home"))
    assert names_of(tmp_path / "restored") == names_of(data)
    assert_same(meridian, tmp_path / "restored", expected)
