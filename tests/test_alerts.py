"""The nightly alert databases: what pipelines store is read back as it was, whatever happens to the server."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from meridian_apdb import AlertDatabase, AlertError, Conflict, InvalidRequest, NotFound, circle, polygon  # noqa: E402

from alert_model import Model, rows_of  # noqa: E402
from meridian_cli import Meridian  # noqa: E402
from serving import Server, serving, wait_until  # noqa: E402

SCHEMA = ROOT / "tests" / "level1" / "schema.yaml"
STORES = ["sqlite", "postgres"]
SEEDS = [1, 2, 3]
ROUNDS = 120
KILLS = int(os.environ.get("MERIDIAN_ALERTS_KILLS", "12"))


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> list[str]:
    """The options of `meridian alerts create` for a store."""
    return [] if request.param == "sqlite" else ["--postgres", request.getfixturevalue("postgres")]


numbers = iter(range(10**6))


def create(meridian: Meridian, data: Path, *options: object, name: str | None = None, schema: Path = SCHEMA) -> str:
    name = name or f"night_{os.getpid()}_{next(numbers)}"
    meridian.must("alerts", "create", name, "--data", data, "--schema", schema, *options)
    return name


def client(server: Server, name: str, **options: object) -> AlertDatabase:
    return AlertDatabase(server.url(""), name, **options)  # type: ignore[arg-type]


def objects(*ids: int, ra: float = 10.0, **columns: object) -> pa.Table:
    rows = {"diaObjectId": list(ids), "ra": [ra] * len(ids), "dec": [5.0] * len(ids), "nDiaSources": [1] * len(ids)}
    return pa.table(rows | {name: [value] * len(ids) for name, value in columns.items()})


def sources(*ids: int, owner: int = 1, visit: int = 1, midpoint: float = 60000.0) -> pa.Table:
    count = len(ids)
    return pa.table(
        {
            "diaSourceId": list(ids),
            "visit": [visit] * count,
            "detector": [7] * count,
            "diaObjectId": [owner] * count,
            "midpointMjdTai": [midpoint] * count,
            "ra": [10.0] * count,
            "dec": [5.0] * count,
            "timeProcessedMjdTai": [midpoint] * count,
        }
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_stored_is_read_back(meridian: Meridian, tmp_path: Path, store: list[str], seed: int) -> None:
    """Random stores and changes, beside dictionaries that do the same."""
    name = create(meridian, tmp_path, "--replica", *store)
    with serving(meridian, tmp_path) as server:
        model = Model(client(server, name), random.Random(seed))
        steps = [model.store] * 6 + [model.store_refused, model.close, model.withdraw, model.to_solar_system, model.to_objects]
        for _ in range(ROUNDS):
            model.random.choice(steps)()
            model.check()
        model.check_chunks()
    # Another server reads the same.
    with serving(meridian, tmp_path) as server:
        model.database = client(server, name)
        model.check()
        model.check_chunks()


def test_a_column_is_added_at_night(meridian: Meridian, tmp_path: Path, store: list[str]) -> None:
    """Rows from before have NULL there, and clients that do not know it go on."""
    name = create(meridian, tmp_path, *store)
    text = SCHEMA.read_text()
    first = "  - {name: parallax, datatype: float, nullable: true, description: Parallax., fits:tunit: mas}\n"
    added = "  - {name: colour, datatype: string, nullable: true, description: Colour.}\n"
    with serving(meridian, tmp_path) as server:
        database = client(server, name)
        database.store(60000.0, objects=objects(1, parallax=2.5))
        with pytest.raises(InvalidRequest, match="no column colour"):
            database.store(60000.5, objects=objects(2, colour="red"))
        last = "  - {name: nDiaSources, datatype: int, nullable: false, description: Number of sources.}\n  primaryKey: \"#DiaObjectLast"
        longer = text.replace(first, first + added).replace(last, added + last)
        database.set_schema(longer)
        database.store(60001.0, objects=objects(2, colour="red", parallax=1.5))
        database.store(60001.0, objects=objects(3))
        # An empty text is one, and no NULL.
        database.store(60002.0, objects=objects(4, colour=""))
        found = database.latest_objects(circle(10, 5, 1))
        assert rows_of(found, ["diaObjectId", "colour"]) == [(1, None), (2, "red"), (3, None), (4, "")]
        for wrong, sentence in (
            (text, "colour is not in it any more"),
            (longer.replace(added, added.replace("string", "long")), "another type"),
            (longer.replace(first, first + first.replace("parallax", "x").replace("true", "false")), "has to be nullable"),
            (longer.replace(last, first + last), "the latest versions were stored without it"),
            ("tables: []", "no table DiaObject"),
            ("a: [", "schema cannot be used"),
        ):
            with pytest.raises(InvalidRequest, match=sentence):
                database.set_schema(wrong)


def test_another_server_reads_rows_of_a_later_schema(meridian: Meridian, tmp_path: Path, store: list[str]) -> None:
    name = create(meridian, tmp_path, *store)
    first = "  - {name: flags, datatype: long, nullable: true, description: Flags.}\n  - {name: timeProcessedMjdTai"
    longer = SCHEMA.read_text().replace(first, "  - {name: band, datatype: char, nullable: true, description: Band.}\n" + first)
    with serving(meridian, tmp_path) as server, serving(meridian, tmp_path) as second:
        database, other = client(server, name), client(second, name)
        assert other.forced_sources(objects=[1], since=0).num_rows == 0
        database.set_schema(longer)
        columns = {"diaObjectId": [1], "visit": [5], "detector": [7], "ra": [10.0], "dec": [5.0], "midpointMjdTai": [60000.0]}
        database.store(60000.0, forced_sources=pa.table(columns | {"band": ["r"], "timeProcessedMjdTai": [60000.0]}))
        assert other.forced_sources(objects=[1], since=0)["band"].to_pylist() == ["r"]


def test_bad_requests(meridian: Meridian, tmp_path: Path, store: list[str]) -> None:
    """Each is refused with a sentence, and nothing of it stays."""
    name = create(meridian, tmp_path, *store)
    with serving(meridian, tmp_path) as server:
        database = client(server, name, retries=0)
        without_ra = objects(1).drop_columns(["ra"])
        for error, match, rows in (
            (InvalidRequest, "without its column ra", without_ra),
            (InvalidRequest, "has no position: ra 10, dec 95", objects(1).set_column(2, "dec", pa.array([95.0]))),
            (InvalidRequest, "DiaObject.ra may not be NULL, and is in row 2", objects(1, 2).set_column(1, "ra", pa.array([1.0, float("nan")]))),
            (InvalidRequest, "DiaObject.nDiaSources does not fit its type", objects(1).set_column(3, "nDiaSources", pa.array([2**40]))),
            (InvalidRequest, "DiaObject.ra does not fit its type", objects(1).set_column(1, "ra", pa.array(["ten"]))),
            (Conflict, "the DiaObject 1 comes twice", objects(1, 1)),
        ):
            with pytest.raises(error, match=match):
                database.store(60000.0, objects=rows)
        for moment in (float("nan"), 2460000.5, float("inf")):
            with pytest.raises(InvalidRequest, match="Modified Julian Date"):
                database.store(moment, objects=objects(1))
        with pytest.raises(InvalidRequest, match="give a circle, box, ellipse or polygon"):
            database.latest_objects("square 1 2 3")
        assert database.latest_objects(circle(10, 5, 1)).num_rows == 0
        with pytest.raises(NotFound, match="there is no alert database other"):
            client(server, "other").describe()
        for body, match in ((b"", b"visit_time"), (b"no arrow", b"sequence of Arrow streams")):
            time_given = {"visit_time": 60000.0} if body else {}
            status, said = post(server.url(f"/alerts/{name}/store", **time_given), body)
            assert status == 400 and match in said
        for path, body in (("sources", b"{}"), ("sources", b"["), ("objects/close", b'{"objects": 3}'), ("visits/x/1", None)):
            status, said = post(server.url(f"/alerts/{name}/{path}"), body)
            assert status == 400 and json.loads(said)["error"], said


def test_damaged_streams(meridian: Meridian, tmp_path: Path) -> None:
    """Streams that were cut off or changed are refused, whatever they say, and the server goes on."""
    name = create(meridian, tmp_path)
    server = Server(meridian, tmp_path)
    try:
        database = client(server, name)
        database.store(60000.0, objects=objects(1))
        whole = stream(objects(1, 2, 3))
        rng = random.Random(5)
        for _ in range(1000):
            damaged = bytearray(whole[: rng.randrange(len(whole))] if rng.random() < 0.3 else whole)
            for _ in range(rng.randrange(1, 6)):
                if damaged:
                    damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
            status, said = post(server.url(f"/alerts/{name}/store", visit_time=59999.0), bytes(damaged))
            assert status in (200, 400, 409), said
        compressed = pa.ipc.IpcWriteOptions(compression="zstd")
        status, said = post(server.url(f"/alerts/{name}/store", visit_time=60001.0), stream(objects(2), compressed))
        assert status == 400 and b"it is compressed" in said
        nothing = pa.table({"diaObjectId": pa.nulls(10**5)})
        status, said = post(server.url(f"/alerts/{name}/store", visit_time=60001.0), stream(nothing))
        assert status == 400 and b"more rows than bytes" in said
        assert database.latest_objects(circle(10, 5, 0.1)).num_rows >= 1
        assert server.resident_bytes() < 1 << 30
    finally:
        assert server.stop() == 0


def stream(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    table = table.replace_schema_metadata({"table": "DiaObject"})
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def post(url: str, body: bytes | None) -> tuple[int, bytes]:
    request = urllib.request.Request(url, data=body, method="POST" if body is not None else "GET")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_metadata(meridian: Meridian, tmp_path: Path, store: list[str]) -> None:
    name = create(meridian, tmp_path, *store)
    with serving(meridian, tmp_path) as server:
        database = client(server, name)
        assert database.describe() == {
            "name": name,
            "store": "postgres" if store else "sqlite",
            "schema_version": "0.1.1",
            "replica_seconds": None,
            "publication": None,
            "follows": None,
        }
        assert database.schema_text() == SCHEMA.read_text()
        assert database.metadata()["version:schema"] == "0.1.1"
        database.set_metadata("a/ü b", "1")
        with pytest.raises(Conflict, match="already exists"):
            database.set_metadata("a/ü b", "2")
        database.set_metadata("a/ü b", "2", replace=True)
        assert database.metadata()["a/ü b"] == "2"
        assert database.delete_metadata("a/ü b") and not database.delete_metadata("a/ü b")
        assert database.replica_chunks() is None
        with pytest.raises(Conflict, match="made without --replica"):
            database.rows_of_chunks("DiaObject", [])


def test_replica_chunks_are_forgotten_for_good(meridian: Meridian, tmp_path: Path, store: list[str]) -> None:
    """A chunk that comes again has what was stored since, and another unique id."""
    name = create(meridian, tmp_path, "--replica", "--replica-seconds", 3600, *store)
    with serving(meridian, tmp_path) as server:
        database = client(server, name)
        database.store(60000.0, objects=objects(1))
        [first] = database.replica_chunks() or []
        database.store(60000.01, objects=objects(2))
        [second] = database.replica_chunks() or []
        assert first["id"] == second["id"] == (60000 - 40587) * 86400
        assert first["unique_id"] != second["unique_id"] and second["last_update_ns"] > first["last_update_ns"]
        assert database.delete_replica_chunks([first["id"], 5]) == 1
        assert database.replica_chunks() == []
        assert database.rows_of_chunks("DiaObject", [first["id"]]).num_rows == 0
        database.store(60000.02, objects=objects(3))
        assert database.rows_of_chunks("DiaObject", [first["id"]])["diaObjectId"].to_pylist() == [3]
        assert database.latest_objects(circle(10, 5, 1)).num_rows == 3


def test_many_clients_store_at_once(meridian: Meridian, tmp_path: Path, store: list[str]) -> None:
    """A store that is refused leaves those alone that are committed with it."""
    name = create(meridian, tmp_path, "--replica", *store)
    with serving(meridian, tmp_path) as server:
        database = client(server, name)
        database.store(60000.0, objects=objects(1))
        refusals = []

        def detector(number: int) -> None:
            for visit in range(5):
                rows = sources(*(number * 1000 + visit * 10 + k for k in range(3)), owner=number + 1000, visit=visit, midpoint=60001.0)
                database.store(60001.0 + visit, objects=objects(number + 1000), sources=rows)
                try:
                    # There is a later version.
                    database.store(60000.0, objects=objects(1), sources=sources(10**6 + number * 10 + visit))
                except Conflict as error:
                    refusals.append(error)

        threads = [threading.Thread(target=detector, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refusals) == 60
        found = database.latest_objects(circle(10, 5, 1))
        assert sorted(found["diaObjectId"].to_pylist()) == [1, *range(1000, 1012)]
        assert database.sources(region=polygon([(9, 4), (11, 4), (11, 6), (9, 6)]), since=0).num_rows == 12 * 5 * 3


def test_killed_servers_lose_nothing(meridian: Meridian, tmp_path: Path, store: list[str]) -> None:
    """Stores are sent again until they are acknowledged, and are there once; of each object one version is open."""
    name = create(meridian, tmp_path, "--replica", *store)
    with socket_of(meridian) as port:
        options = ("--http", f"127.0.0.1:{port}")
        server = Server(meridian, tmp_path, *options)
        acknowledged: dict[int, list[int]] = {}
        failures: list[BaseException] = []
        stop = threading.Event()

        def pipeline(detector: int) -> None:
            database = AlertDatabase(f"http://127.0.0.1:{port}", name, retries=12, timeout=20)
            visit = 0
            while not stop.is_set():
                visit += 1
                rows = sources(*(detector * 10**6 + visit * 100 + k for k in range(20)), owner=detector, visit=visit, midpoint=60000.0 + visit)
                try:
                    database.store(60000.0 + visit, objects=objects(detector, detector + 100), sources=rows)
                except BaseException as error:
                    failures.append(error)
                    return
                acknowledged.setdefault(detector, []).append(visit)

        threads = [threading.Thread(target=pipeline, args=(detector,)) for detector in range(1, 5)]
        for thread in threads:
            thread.start()
        rng = random.Random(3)

        def wait_for_visits(count: int) -> None:
            def are_stored() -> bool:
                return bool(failures) or all(len(acknowledged.get(detector, [])) > count for detector in range(1, 5))

            wait_until(are_stored, 120, f"each detector has stored more than {count} visits")

        for kills in range(KILLS):
            # However slow the machine is, something is stored between two kills.
            wait_for_visits(kills)
            time.sleep(rng.uniform(0.05, 0.6))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            server = Server(meridian, tmp_path, *options)
        wait_for_visits(KILLS)
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures, failures
        database = AlertDatabase(f"http://127.0.0.1:{port}", name)
        chunks = [chunk["id"] for chunk in database.replica_chunks() or []]
        versions = database.rows_of_chunks("DiaObject", chunks)
        spans: dict[int, list[tuple[float, float | None]]] = {}
        for object_id, start, end in rows_of(versions, ["diaObjectId", "validityStartMjdTai", "validityEndMjdTai"]):
            spans.setdefault(object_id, []).append((start, end))
        for detector, visits in acknowledged.items():
            assert len(visits) > KILLS and visits == sorted(set(visits))
            stored = database.sources(objects=[detector], since=0)["diaSourceId"].to_pylist()
            assert sorted(stored) == [detector * 10**6 + visit * 100 + k for visit in visits for k in range(20)]
            for object_id in (detector, detector + 100):
                intervals = sorted(spans[object_id])
                assert [start for start, _ in intervals] == [60000.0 + visit for visit in visits]
                assert [end for _, end in intervals] == [*(start for start, _ in intervals[1:]), None]
        server.stop()


class socket_of:
    """A port that is free."""

    def __init__(self, _: Meridian) -> None:
        pass

    def __enter__(self) -> int:
        import socket

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return int(free.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        pass


def test_one_server_stores_at_a_time(meridian: Meridian, tmp_path: Path, store: list[str]) -> None:
    name = create(meridian, tmp_path, *store)
    with serving(meridian, tmp_path) as server:
        client(server, name).store(60000.0, objects=objects(1))
        with serving(meridian, tmp_path) as second:
            other = client(second, name, retries=0)
            assert other.latest_objects(circle(10, 5, 1)).num_rows == 1
            with pytest.raises(AlertError, match="one does at a time"):
                other.store(60001.0, objects=objects(2))
            server.stop()
            other.store(60001.0, objects=objects(2))
            assert other.latest_objects(circle(10, 5, 1)).num_rows == 2


def test_commands(meridian: Meridian, tmp_path: Path) -> None:
    """Databases are made and listed; what cannot be made says why."""
    data = tmp_path / "data"
    said = meridian.must("alerts", "create", "prompt", "--data", data, "--schema", SCHEMA, "--replica").text
    assert "the alert database prompt is made, with schema 0.1.1 (columns: DiaObject 8, DiaSource 13, DiaForcedSource 9)" in said
    assert meridian.must("alerts", "list", "--data", data).text == (
        "prompt  sqlite  schema 0.1.1  replica chunks of 600 s  nothing is published, "
        "waiting: 0 closed editions, 0 closed and 0 open replica chunks\n"
    )
    bad = tmp_path / "bad.yaml"
    for name, text, words in (
        ("prompt", SCHEMA.read_text(), "there is an alert database prompt already"),
        ("a/b", SCHEMA.read_text(), "cannot be the name of an alert database"),
        ("x", "tables: [", "the schema cannot be used"),
        ("x", "ra,dec\n" + "1,2\n" * 10**4, "the schema cannot be used: invalid type"),
        ("x", SCHEMA.read_text().replace("name: midpointMjdTai", "name: midpoint"), "DiaSource has no column midpointMjdTai"),
        ("x", SCHEMA.read_text().replace("name: diaSourceId, datatype: long", "name: diaSourceId, datatype: text"), "has to be of type Long"),
    ):
        bad.write_text(text)
        outcome = meridian.run("alerts", "create", name, "--data", data, "--schema", bad)
        assert outcome.status == 1 and words in outcome.complaint, outcome.complaint
        assert len(outcome.complaint) < 500
    outcome = meridian.run("alerts", "create", "x", "--data", data, "--schema", tmp_path / "none.yaml")
    assert outcome.status == 1 and "none.yaml: No such file" in outcome.complaint
    outcome = meridian.run("alerts", "create", "x", "--data", data, "--schema", SCHEMA, "--postgres", "postgres://nobody@127.0.0.1:1/x")
    assert outcome.status == 1 and "cannot be read or changed now" in outcome.complaint
    assert meridian.must("alerts", "list", "--data", data).text.count("\n") == 1
    # The configuration may hold a password.
    assert (data / "alerts" / "prompt" / "config.json").stat().st_mode & 0o777 == 0o600
    assert meridian.must("alerts", "list", "--data", data, "--help").text


def test_who_may_do_what(meridian: Meridian, tmp_path: Path) -> None:
    """Its namesake stores, whoever was granted its name reads, others do neither."""
    create(meridian, tmp_path, name="prompt")
    with serving(meridian, tmp_path) as server:
        refusal = meridian.run("user", "add", "PROMPT", "--data", tmp_path, "--no-password")
        assert refusal.status == 1 and "a user of the name could change its tables" in refusal.complaint
        for user, options in (("prompt", ("--own-database",)), ("reader", ()), ("other", ()), ("root", ("--admin",))):
            words = [str(meridian.binary), "user", "add", user, "--data", str(tmp_path), "--password-stdin", *options]
            subprocess.run(words, input="pw", text=True, check=True, capture_output=True)
        meridian.must("user", "grant", "reader", "--data", tmp_path, "--read", "prompt")
        as_user = {user: client(server, "prompt", user=user, password="pw") for user in ("prompt", "reader", "other", "root")}
        for number, user in enumerate(("prompt", "root")):
            as_user[user].store(60000.0 + number, objects=objects(number))
            as_user[user].set_metadata("by", user, replace=True)
        for user in ("reader", "other"):
            for change in (
                lambda database: database.store(60005.0, objects=objects(9)),
                lambda database: database.set_metadata("by", "them", replace=True),
                lambda database: database.close_objects([1], validity_end=60006.0, time=60006.0),
                lambda database: database.set_schema(SCHEMA.read_text()),
            ):
                with pytest.raises(AlertError, match="may not change the alert database prompt") as caught:
                    change(as_user[user])
                assert caught.value.status == 403
        assert as_user["reader"].latest_objects(circle(10, 5, 1)).num_rows == 2
        with pytest.raises(AlertError, match="may not read") as caught:
            as_user["other"].latest_objects(circle(10, 5, 1))
        assert caught.value.status == 403
        with pytest.raises(AlertError) as caught:
            client(server, "prompt").describe()
        assert caught.value.status == 401
        token = meridian.must("user", "token", "prompt", "--data", tmp_path).text.strip()
        assert client(server, "prompt", token=token).metadata()["by"] == "root"


def test_the_file_is_sound(meridian: Meridian, tmp_path: Path) -> None:
    """SQLite itself finds nothing wrong, and no row was overwritten."""
    name = create(meridian, tmp_path)
    with serving(meridian, tmp_path) as server:
        model = Model(client(server, name), random.Random(9))
        for _ in range(30):
            model.store()
    with sqlite3.connect(tmp_path / "alerts" / name / "hot.sqlite") as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert file.execute("SELECT COUNT(*) FROM objects").fetchone() == (len(model.versions),)
        assert file.execute("SELECT COUNT(*) FROM latest").fetchone() == (len(model.latest),)


@pytest.mark.parametrize("replica", [[], ["replica"]])
@pytest.mark.parametrize("kind", STORES)
def test_the_fields_own_suite(meridian: Meridian, kind: str, replica: list[str]) -> None:
    """The tests that the field publishes for its alert databases."""
    command = [str(ROOT / "tests" / "level1" / "run_suite"), kind, *replica]
    environment = dict(os.environ, MERIDIAN_BIN=str(meridian.binary))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "27 passed" in done.stdout.splitlines()[-1]
