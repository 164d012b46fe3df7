"""PostgreSQL's primary is killed under an alert database: its standby takes over, and nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from meridian_apdb import AlertDatabase, Unavailable, circle  # noqa: E402

import private_postgres  # noqa: E402
from alert_model import rows_of, table_of  # noqa: E402
from meridian_cli import Meridian  # noqa: E402
from replicated_postgres import Pair, replicated_postgres  # noqa: E402
from serving import serving  # noqa: E402
from test_alerts_published import Night, assert_state, check, create  # noqa: E402

pytestmark = pytest.mark.skipif(private_postgres.binaries() is None, reason="there is no PostgreSQL")

STORES = int(os.environ.get("MERIDIAN_FAILOVER_STORES", "40"))
DETECTORS = 3
# From the promotion on.
RESUME_SECONDS = 30.0


class Pipeline:
    """A detector's stores, one after the other, each sent until it is acknowledged, until it is told that these are enough."""

    def __init__(self, url: str, detector: int) -> None:
        self.database = AlertDatabase(url, "prompt", retries=0)
        self.detector = detector
        self.acknowledged: list[int] = []
        self.refused: list[str] = []
        self.enough = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def numbers(self, visit: int) -> list[int]:
        return [(visit * 10 + self.detector) * 100 + number for number in range(5)]

    def run(self) -> None:
        while not (self.enough.is_set() and len(self.acknowledged) >= STORES):
            visit = len(self.acknowledged)
            exposure = {"visit": visit, "detector": self.detector, "midpointMjdTai": 60000.0 + visit, "timeProcessedMjdTai": 60000.0}
            place = {"ra": 10.0, "dec": 5.0}
            objects = table_of([{"diaObjectId": self.detector, "nDiaSources": visit + 1, **place}])
            sources = table_of([{"diaSourceId": number, "diaObjectId": self.detector, **exposure, **place} for number in self.numbers(visit)])
            while True:
                try:
                    self.database.store(60000.0 + visit, objects=objects, sources=sources, request=f"{visit}-{self.detector}")
                    break
                except Unavailable as error:
                    self.refused.append(str(error))
                    time.sleep(0.05)
            self.acknowledged.append(visit)


def fail_over(pair: Pair, pipelines: list[Pipeline]) -> float:
    """Kills the primary while all store, and promotes the standby; tells when that was."""
    while min(len(pipeline.acknowledged) for pipeline in pipelines) < STORES // 4:
        assert any(pipeline.thread.is_alive() for pipeline in pipelines)
        time.sleep(0.01)
    pair.primary.kill()
    # Whatever they send now is refused, and not lost.
    before = [len(pipeline.refused) for pipeline in pipelines]
    while any(len(pipeline.refused) == count for pipeline, count in zip(pipelines, before, strict=True)):
        time.sleep(0.01)
    pair.standby.promote()
    return time.monotonic()


def test_nothing_acknowledged_is_lost(meridian: Meridian, tmp_path: Path) -> None:
    with replicated_postgres() as pair:
        create(meridian, tmp_path, "--postgres", pair.url)
        with serving(meridian, tmp_path) as server:
            pipelines = [Pipeline(server.url(""), detector) for detector in range(1, DETECTORS + 1)]
            for pipeline in pipelines:
                pipeline.thread.start()
            promoted = fail_over(pair, pipelines)
            counts = [len(pipeline.acknowledged) for pipeline in pipelines]
            while any(len(pipeline.acknowledged) == count for pipeline, count in zip(pipelines, counts, strict=True)):
                assert time.monotonic() < promoted + RESUME_SECONDS, [pipeline.refused[-1] for pipeline in pipelines]
                time.sleep(0.05)
            for pipeline in pipelines:
                pipeline.enough.set()
            for pipeline in pipelines:
                pipeline.thread.join(600)
                assert not pipeline.thread.is_alive()
            stored = {pipeline.detector: len(pipeline.acknowledged) for pipeline in pipelines}
            # Each once, and one open version of each object.
            database = AlertDatabase(server.url(""), "prompt")
            wanted = sorted(number for pipeline in pipelines for visit in pipeline.acknowledged for number in pipeline.numbers(visit))
            found = database.sources(region=circle(10.0, 5.0, 1.0), since=0.0)
            assert sorted(found["diaSourceId"].to_pylist()) == wanted
            latest = rows_of(database.latest_objects(circle(10.0, 5.0, 1.0)), ["diaObjectId", "nDiaSources"])
            assert latest == sorted(stored.items())
            published = database.publish()
            assert sum(edition["rows"] for edition in published) > len(wanted)
            with server.connect(database="prompt") as connection, connection.cursor() as cursor:
                cursor.execute("SELECT COUNT(*), COUNT(DISTINCT diaSourceId) FROM DiaSource")
                assert cursor.fetchall() == ((len(wanted), len(wanted)),)
                cursor.execute("SELECT diaObjectId, COUNT(*), SUM(validityEndMjdTai IS NULL) FROM DiaObject GROUP BY diaObjectId ORDER BY 1")
                assert [tuple(map(int, row)) for row in cursor.fetchall()] == [(*pair, 1) for pair in sorted(stored.items())]
        check(meridian, tmp_path)


def test_reads_and_changes_go_on(meridian: Meridian, tmp_path: Path) -> None:
    """All that a night does, before and after; a server that starts when the first host is gone finds the other."""
    with replicated_postgres() as pair:
        create(meridian, tmp_path, "--postgres", pair.url)
        with serving(meridian, tmp_path) as server:
            night = Night(server, 21)
            night.change(12)
            night.publish(server)
            night.model.check()
            pair.primary.kill()
            impatient = AlertDatabase(server.url(""), "prompt", retries=0)
            with pytest.raises(Unavailable, match="none of the PostgreSQL servers can be written to"):
                impatient.latest_objects(circle(0.0, 10.0, 20.0))
            pair.standby.promote()
            night.model.check()
            night.change(12)
            night.publish(server)
            night.model.check()
        with serving(meridian, tmp_path) as server:
            night.moved(server)
            night.model.check()
            night.change(6)
            night.publish(server)
            with server.connect(database="prompt") as connection:
                assert_state(connection, night.model.state())
        check(meridian, tmp_path)


def test_urls_that_are_of_no_use(meridian: Meridian, tmp_path: Path) -> None:
    for url, words in (
        ("postgres://a:1,b:2/d?target_session_attrs=standby", "only a server that can be written to is of use"),
        ("postgres://127.0.0.1:1,127.0.0.1:2/d", "127.0.0.1:1: "),
    ):
        schema = ROOT / "tests" / "level1" / "schema.yaml"
        outcome = meridian.run("alerts", "create", "prompt", "--data", tmp_path, "--schema", schema, "--replica", "--postgres", url)
        assert outcome.status == 1 and words in outcome.complaint, outcome.complaint
