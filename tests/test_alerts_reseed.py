"""A release takes the place of what is published of an alert database: as a whole, beside pipelines, whatever is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from meridian_apdb import AlertDatabase, AlertError, Conflict, Unavailable, circle  # noqa: E402

import private_postgres  # noqa: E402
from alert_model import rows_of, table_of  # noqa: E402
from alert_release import SCHEMAS, Release, release_of, take_place  # noqa: E402
from meridian_cli import Meridian, Outcome  # noqa: E402
from serving import Server, serving, wait_until  # noqa: E402
from test_alerts_published import SCHEMA, Night, execute, assert_state, check, create, state, stores  # noqa: E402

SEEDS = [int(seed) for seed in os.environ.get("MERIDIAN_RESEED_SEEDS", "1").split(",")]
# Where a reseeding is killed: in the middle of its files, before the archive changes, and between the archive and the store.
PHASES = os.environ.get("MERIDIAN_RESEED_PHASES", "begun,chunks-written,before-publish,after-publish").split(",")


def reseed(meridian: Meridian, data: Path, directory: Path, cut: float, *options: object, fault: str | None = None) -> Outcome:
    env = {"MERIDIAN_FAULT": fault} if fault else None
    return meridian.run("alerts", "reseed", "prompt", "--data", data, "--release", directory, "--cut", repr(cut), *options, env=env)


def middle(night: Night) -> float:
    """A time with rows before and behind it."""
    starts = sorted(start for _, start in night.model.versions)
    return round(starts[len(starts) // 2] + 1e-6, 7)


def assert_is(night: Night, server: Server, times: int = 3) -> None:
    """Pipelines and users see what the model has."""
    for _ in range(times):
        night.model.check()
    with server.connect(database="prompt") as connection:
        assert_state(connection, night.model.state(), night.columns())


@contextmanager
def store_of(kind: str) -> Iterator[list[object]]:
    if kind == "sqlite":
        yield []
    else:
        with private_postgres.private_postgres() as url:
            yield ["--postgres", url]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("store", stores())
def test_a_release_takes_the_place(meridian: Meridian, tmp_path: Path, store: str, seed: int) -> None:
    data = tmp_path / "data"
    with store_of(store) as options:
        create(meridian, data, *options)
        with serving(meridian, data) as server:
            night = Night(server, seed)
            night.change(16)
            night.publish(server)
            before = night.history[-1][0]
            # What is published with the release.
            night.change(16)
            cut = middle(night)
            release = release_of(night.model, cut, 10**6)
            directory = release.write(tmp_path / "release")
            tried = reseed(meridian, data, directory, cut, "--dry-run")
            assert tried.status == 0 and "nothing was changed" in tried.text, tried.complaint
            night.model.check()
            done = reseed(meridian, data, directory, cut)
            assert done.status == 0, done.complaint
            assert "is reseeded with release 1" in done.text
            for table, rows in release.rows.items():
                assert f"{table}: {len(rows)} rows of the release" in done.text
            take_place(night.model, release)
            assert_is(night, server, 6)
            night.model.store_refused()
            assert_released(server, night, before, cut)
            # The night goes on, with rows of the release and of what stayed.
            night.change(24)
            for _ in range(4):
                night.model.check()
            night.history.clear()
            night.publish(server)
            assert_is(night, server)
            if seed == SEEDS[0]:
                meridian.must("compact", "--data", data, "--db", "prompt", "--all")
            later(meridian, data, tmp_path, server, night)
        with serving(meridian, data) as server:
            night.moved(server)
            assert_is(night, server)
            night.model.store_refused()
            night.change(8)
            night.publish(server)
        check(meridian, data)


def assert_released(server: Server, night: Night, before: str, cut: float) -> None:
    """What was published before cannot be asked for; what is published now can."""
    with server.connect(database="prompt") as connection:
        [[shown, edition, number, found_cut]] = execute(
            connection, "SELECT CAST(publishedAt AS CHAR), edition, releaseNumber, cutMjdTai FROM AlertRelease ORDER BY edition DESC LIMIT 1"
        )
        assert found_cut == cut
        editions = execute(connection, "SELECT edition FROM Edition ORDER BY edition")
        assert editions == [(at + 1,) for at in range(edition)]
        execute(connection, f"SET meridian_as_of = '{before}'")
        for table in SCHEMAS:
            with pytest.raises(pymysql.MySQLError, match="before the release of") as raised:
                execute(connection, f"SELECT COUNT(*) FROM {table}")
            assert raised.value.args[0] == 1231
            execute(connection, "SET meridian_as_of = ''")
            with pytest.raises(pymysql.MySQLError, match="before the release of") as raised:
                execute(connection, f"SELECT COUNT(*) FROM {table} AS OF '{before}'")
            assert raised.value.args[0] == 1231
            execute(connection, f"SET meridian_as_of = '{before}'")
        execute(connection, f"SET meridian_as_of = '{shown}'")
        assert_state(connection, night.model.state(), night.columns())
        assert number >= 1


def later(meridian: Meridian, data: Path, directory: Path, server: Server, night: Night) -> None:
    """A second release, a year later."""
    cut = middle(night)
    release = release_of(night.model, cut, 2 * 10**6)
    done = reseed(meridian, data, release.write(directory / "second"), cut)
    assert done.status == 0 and "release 2" in done.text, done.complaint
    shown = night.history[-1][0]
    take_place(night.model, release)
    assert_is(night, server)
    assert_released(server, night, shown, cut)


def test_an_archive_is_a_release(meridian: Meridian, tmp_path: Path) -> None:
    """What was archived takes its own place: nothing is seen of it."""
    data = tmp_path / "data"
    create(meridian, data, "--keep-nights", 0)
    with serving(meridian, data) as server:
        night = Night(server, 6)
        night.change(20)
        night.publish(server)
        meridian.must("alerts", "archive", "prompt", "--data", data, "--output", tmp_path / "all", "--rows-per-file", 20)
        cut = night.model.moment()
        done = reseed(meridian, data, tmp_path / "all", cut)
        # Sources of objects that were never stored, or are gone, are no release.
        if done.status != 0:
            assert "and not the objects" in done.complaint
            pytest.fail(done.complaint)
        assert_is(night, server, 6)
        night.change(12)
        night.publish(server)
        assert_is(night, server)
    check(meridian, data)


class Stopped:
    """A reseeding that stops at a boundary, again and again, until it is let go."""

    def __init__(self, meridian: Meridian, data: Path, directory: Path, cut: float, phase: str) -> None:
        arguments = ["alerts", "reseed", "prompt", "--data", data, "--release", directory, "--cut", repr(cut)]
        self.process = meridian.start(*arguments, env={"MERIDIAN_FAULT": f"{phase}:stop"})
        wait_until(self.is_stopped, 300, f"it stops at {phase}")

    def is_stopped(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()
        return Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"

    def let_go(self) -> str:
        ended = threading.Event()

        def wake() -> None:
            while not ended.wait(0.05):
                self.process.send_signal(signal.SIGCONT)

        waking = threading.Thread(target=wake)
        waking.start()
        try:
            out, complaint = self.process.communicate(timeout=600)
        finally:
            ended.set()
            waking.join()
        assert self.process.returncode == 0, complaint.decode()
        return out.decode()


@pytest.mark.parametrize("store", stores())
def test_pipelines_store_meanwhile(meridian: Meridian, tmp_path: Path, store: str) -> None:
    """What is stored while a release is prepared stays, changes have to wait, and nobody sees anything half."""
    data = tmp_path / "data"
    with store_of(store) as options:
        create(meridian, data, *options)
        with serving(meridian, data) as server:
            night = Night(server, 9)
            night.change(20)
            night.publish(server)
            former = night.model.state()
            cut = middle(night)
            release = release_of(night.model, cut, 10**6)
            stopped = Stopped(meridian, data, release.write(tmp_path / "release"), cut, "begun")
            second = reseed(meridian, data, tmp_path / "release", cut)
            assert second.status == 1 and "is being reseeded already" in second.complaint
            for _ in range(6):
                night.model.store()
            for _ in range(3):
                night.model.check()
            model = night.model
            impatient = AlertDatabase(server.url(""), "prompt", retries=0)
            for change in (
                lambda: impatient.close_objects(sorted(model.latest)[:1], validity_end=model.time + 1, time=model.time + 1),
                lambda: impatient.withdraw_sources(sorted(model.sources)[:1], withdrawn=model.time, time=model.time),
                lambda: impatient.reassign_to_solar_system({sorted(model.sources)[0]: 1}, time=model.time),
            ):
                with pytest.raises(Unavailable, match="being reseeded"):
                    change()
            early = [{"diaObjectId": 77, "ra": 1.0, "dec": 10.0, "nDiaSources": 1}]
            with pytest.raises(Conflict, match="being reseeded with a release of everything before"):
                impatient.store(cut - 0.5, objects=table_of(early))
            # Nothing is published meanwhile; users read on.
            assert model.database.publish() == []
            with server.connect(database="prompt") as connection:
                assert_state(connection, former, night.columns())
            stopped.let_go()
            stayed = list(model.objects)
            take_place(model, release)
            assert [row for row in stayed if row["validityStartMjdTai"] >= cut]
            for _ in range(4):
                model.check()
            night.change(10)
            night.publish(server)
            assert_is(night, server)
        check(meridian, data)


def first_release(meridian: Meridian, data: Path, directory: Path, night: Night, server: Server) -> None:
    """A release that is there already, and all published: then a reseeding makes no table and publishes no edition before its own."""
    cut = middle(night)
    release = release_of(night.model, cut, 5 * 10**6)
    done = reseed(meridian, data, release.write(directory / "first"), cut)
    assert done.status == 0, done.complaint
    take_place(night.model, release)
    night.change(12)
    night.publish(server)


@pytest.mark.parametrize("store", stores())
def test_pipelines_wait_for_the_last_step(meridian: Meridian, tmp_path: Path, store: str) -> None:
    """Between the archive and the store everybody waits for a moment; what cannot wait is told to come again."""
    data = tmp_path / "data"
    with store_of(store) as options:
        create(meridian, data, "--keep-nights", 0, *options)
        with serving(meridian, data) as server:
            night = Night(server, 10)
            night.change(16)
            night.publish(server)
            first_release(meridian, data, tmp_path, night, server)
            cut = middle(night)
            release = release_of(night.model, cut, 10**6)
            stopped = Stopped(meridian, data, release.write(tmp_path / "release"), cut, "after-publish")
            # Rows that only the archive has are of neither now.
            impatient = AlertDatabase(server.url(""), "prompt", retries=0)
            with pytest.raises(Unavailable, match="a release is taking its place just now"):
                impatient.sources(region=circle(0.0, 10.0, 20.0), since=0.0)
            # A store waits, and is done when it is over.
            model, outcome = night.model, []
            time_of_store = model.moment()
            rows = [{"diaObjectId": 78, "ra": 1.0, "dec": 10.0, "nDiaSources": 1}]
            patient = AlertDatabase(server.url(""), "prompt")
            storing = threading.Thread(target=lambda: outcome.append(patient.store(time_of_store, objects=table_of(rows))))
            storing.start()
            storing.join(1.0)
            assert storing.is_alive() and not outcome
            stopped.let_go()
            storing.join(120)
            assert outcome == [True]
            take_place(model, release)
            row = rows[0] | {"validityStartMjdTai": time_of_store, "validityEndMjdTai": None, "firstDiaSourceMjdTai": None}
            model.objects.append(row)
            model.latest[78] = row
            model.versions.append((78, time_of_store))
            for _ in range(3):
                model.check()
            night.change(6)
            night.publish(server)
            assert_is(night, server)
        check(meridian, data)


@pytest.mark.parametrize("store", stores())
def test_a_killed_reseeding_is_whole_or_nothing(meridian: Meridian, tmp_path: Path, store: str) -> None:
    data = tmp_path / "data"
    with store_of(store) as options:
        create(meridian, data, *options)
        with serving(meridian, data) as server:
            night = Night(server, 11)
            night.change(16)
            night.publish(server)
            first_release(meridian, data, tmp_path, night, server)
            number = 0
            for phase in PHASES:
                number += 1
                cut = middle(night)
                release = release_of(night.model, cut, number * 10**6)
                directory = release.write(tmp_path / phase)
                killed = reseed(meridian, data, directory, cut, fault=f"{phase}:kill")
                assert killed.status == -signal.SIGKILL, killed.complaint
                # Whoever publishes next, as a server does every ten seconds, makes good what it left.
                night.model.database.publish()
                if phase == "after-publish":
                    take_place(night.model, release)
                for _ in range(3):
                    night.model.check()
                night.model.store_refused()
                night.change(6)
                night.publish(server)
                assert_is(night, server)
            cut = middle(night)
            release = release_of(night.model, cut, 9 * 10**6)
            done = reseed(meridian, data, release.write(tmp_path / "last"), cut)
            assert done.status == 0, done.complaint
            take_place(night.model, release)
            assert_is(night, server)
        check(meridian, data)


def test_a_server_that_is_killed_meanwhile(meridian: Meridian, tmp_path: Path) -> None:
    """The reseeding goes on by itself, and the next server finds what it left."""
    data = tmp_path / "data"
    create(meridian, data)
    server = Server(meridian, data)
    try:
        night = Night(server, 12)
        night.change(16)
        night.publish(server)
        cut = middle(night)
        release = release_of(night.model, cut, 10**6)
        stopped = Stopped(meridian, data, release.write(tmp_path / "release"), cut, "manifest-written")
        night.model.store()
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        stopped.let_go()
        take_place(night.model, release)
        server = Server(meridian, data)
        night.moved(server)
        night.model.check()
        night.change(8)
        night.publish(server)
        assert_is(night, server)
    finally:
        server.stop()
    check(meridian, data)


Spoil = Callable[[dict[str, pa.Table]], dict[str, pa.Table]]


def with_rows(tables: dict[str, pa.Table], table: str, rows: list[dict[str, Any]]) -> dict[str, pa.Table]:
    return tables | {table: pa.concat_tables([tables[table], pa.Table.from_pylist(rows, SCHEMAS[table])])}


def first_row(tables: dict[str, pa.Table], table: str, **values: object) -> dict[str, Any]:
    return tables[table].slice(0, 1).to_pylist()[0] | values


def test_releases_that_cannot_be(meridian: Meridian, tmp_path: Path) -> None:
    """They are refused with what is wrong before anything is changed."""
    data = tmp_path / "data"
    create(meridian, data)
    meridian.must("alerts", "create", "plain", "--data", data, "--schema", SCHEMA)
    with serving(meridian, data) as server:
        night = Night(server, 13)
        night.change(20)
        night.publish(server)
        model = night.model
        cut = middle(night)
        good = release_of(model, cut, 10**6)
        tables = {table: pa.Table.from_pylist(rows, SCHEMAS[table]) for table, rows in good.rows.items()}
        stays = next(row for row in model.sources.values() if row["midpointMjdTai"] >= cut)
        objects: dict[int, list[dict[str, Any]]] = {}
        for row in good.rows["DiaObject"]:
            objects.setdefault(row["diaObjectId"], []).append(row)
        long = next(rows[0] for rows in objects.values() if len(rows) > 1)
        inside = (long["validityStartMjdTai"] + long["validityEndMjdTai"]) / 2
        wrong: list[tuple[dict[str, pa.Table], str]] = [
            (tables | {"DiaSource": tables["DiaSource"].drop_columns(["visit"])}, "lacks columns of DiaSource in the schema of the database: visit"),
            (with_rows(tables, "DiaSource", [first_row(tables, "DiaSource")]), "these DiaSources come twice"),
            (with_rows(tables, "DiaForcedSource", [first_row(tables, "DiaForcedSource")]), "come twice, by object, visit and detector"),
            (with_rows(tables, "DiaObject", [long | {"validityEndMjdTai": None}]), "there are several versions of a time"),
            (with_rows(tables, "DiaObject", [long | {"validityStartMjdTai": inside}]), "valid at the same time"),
            (
                with_rows(tables, "DiaObject", [long | {"validityStartMjdTai": long["validityStartMjdTai"] - 1, "validityEndMjdTai": None}]),
                "have no end, and are not the last ones",
            ),
            (with_rows(tables, "DiaSource", [first_row(tables, "DiaSource", diaSourceId=7, diaObjectId=4711)]), "DiaSources of these DiaObjects, and not the objects: 4711"),
            (with_rows(tables, "DiaForcedSource", [first_row(tables, "DiaForcedSource", diaObjectId=4712)]), "and not the objects: 4712"),
            (with_rows(tables, "DiaObject", [long | {"validityStartMjdTai": cut, "validityEndMjdTai": None}]), "what is from before its cut"),
            (with_rows(tables, "DiaObject", [first_row(tables, "DiaObject", diaObjectId=7, validityStartMjdTai=cut - 1, validityEndMjdTai=cut + 1)]), "not later than the cut"),
            (with_rows(tables, "DiaObject", [first_row(tables, "DiaObject", diaObjectId=7, dec=91.0)]), "is no position"),
            (with_rows(tables, "DiaObject", [first_row(tables, "DiaObject", nDiaSources=None)]), "nDiaSources may not be NULL"),
            (with_rows(tables, "DiaSource", [first_row(tables, "DiaSource", diaSourceId=stays["diaSourceId"])]), "does not fit to the rows that stay"),
        ]
        for number, (spoiled, words) in enumerate(wrong):
            directory = tmp_path / f"wrong-{number}"
            for table, rows in spoiled.items():
                directory.mkdir(exist_ok=True)
                pq.write_table(rows, directory / f"{table}.parquet")
            outcome = reseed(meridian, data, directory, cut, *(["--dry-run"] if number % 2 else []))
            assert outcome.status == 1 and words in outcome.complaint, (words, outcome.complaint)
        nothing = reseed(meridian, data, tmp_path / "nothing", cut)
        assert nothing.status == 1 and "a release is a directory with directories" in nothing.complaint
        plain = meridian.run("alerts", "reseed", "plain", "--data", data, "--release", tmp_path, "--cut", cut)
        assert plain.status == 1 and "without --replica" in plain.complaint
        # Nothing was changed.
        model.check()
        assert_is(night, server)
        night.change(6)
        night.publish(server)
        assert_is(night, server)
    check(meridian, data)


def test_a_database_of_which_nothing_is_published(meridian: Meridian, tmp_path: Path) -> None:
    """The first catalogue of a survey may be a release, where no server runs."""
    data = tmp_path / "data"
    create(meridian, data)
    release = Release(60000.0)
    place = {"ra": 0.5, "dec": 10.0}
    versions = dict.fromkeys(SCHEMAS["DiaObject"].names) | {"diaObjectId": 5, "validityStartMjdTai": 59000.0, "nDiaSources": 1} | place
    release.rows["DiaObject"].append(versions)
    done = reseed(meridian, data, release.write(tmp_path / "release", files=1), 60000.0)
    assert done.status == 0 and "edition 1" in done.text, done.complaint
    with serving(meridian, data) as server:
        night = Night(server, 14)
        take_place(night.model, release)
        assert_is(night, server)
        night.change(10)
        night.publish(server)
        assert_is(night, server)
        with server.connect(database="prompt") as connection:
            assert len(state(connection)["DiaObject"]) == len(night.model.objects)
    check(meridian, data)
