"""The published parts of each month that is over become one, once: no answer changes, whatever is stored, changed, reseeded or killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from alert_release import release_of, take_place  # noqa: E402
from meridian_cli import Meridian, Outcome  # noqa: E402
from serving import Server, serving, wait_until  # noqa: E402
from shifted_clock import AtATime, library  # noqa: E402
from test_alerts_emptied import check_reads  # noqa: E402
from test_alerts_published import Night, answers_as_of, check, check_history, create  # noqa: E402

# Where the sort of a table is killed, one table after the other.
PHASES = os.environ.get("MERIDIAN_SORT_PHASES", "begun,chunks-written,before-publish,after-publish").split(",")
KILLS = int(os.environ.get("MERIDIAN_SORT_KILLS", "4"))
# The tables of rows of the sky, of which each edition here has some.
TABLES = ("DiaObjectVersion", "DiaSourceStored", "DiaForcedSourceStored")

Answers = dict[str, list[bytes | pa.Table]]
Part = dict[str, object]


def middle_of_month(back: int) -> datetime:
    """The middle of the month so many months ago, in UTC."""
    time = datetime.now(UTC).replace(day=15)
    for _ in range(back):
        time = (time.replace(day=1) - timedelta(days=1)).replace(day=15)
    return time


def month(back: int) -> str:
    return middle_of_month(back).strftime("%Y-%m")


@dataclass
class Site:
    """A data directory with editions of two months that are over and of the current one, and what was answered."""

    meridian: Meridian
    data: Path
    clock: Path
    night: Night
    answers: Answers

    def sort(self, *options: object, fault: str | None = None) -> Outcome:
        env = {"MERIDIAN_FAULT": fault} if fault else None
        return self.meridian.run("alerts", "sort", "prompt", "--data", self.data, *options, env=env)

    def parts(self, table: str) -> list[Part]:
        listed = self.meridian.must("tables", "--data", self.data, "--parts", "--format", "json").text
        lines = [json.loads(line) for line in listed.splitlines()]
        # What was merged is listed while somebody reads it.
        return [line for line in lines if (line["database"], line["table"]) == ("prompt", table) and "loaded" in line]

    def months(self, table: str) -> list[str]:
        """The months of a table's parts."""
        return [str(part["loaded"])[:7] for part in self.parts(table)]

    def note(self, server: Server) -> None:
        """Notes the answers as of the last edition."""
        at = self.night.history[-1][0]
        self.answers[at] = answers_as_of(server, at)

    def assert_same(self, server: Server, times: int | None = None) -> None:
        """What was answered as of each time, or of some, is answered with the same bytes, and users see the model's rows."""
        count = len(self.answers) if times is None else times
        for at in self.night.model.random.sample(sorted(self.answers), count):
            assert answers_as_of(server, at) == self.answers[at], at
        with server.connect(database="prompt") as connection:
            check_history(connection, self.night, 2)


@pytest.fixture(scope="module")
def made(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Site:
    directory = tmp_path_factory.mktemp("months")
    data, clock = directory / "data", library(directory)
    create(meridian, data)
    site: Site | None = None
    for back in (2, 1, 0):
        with serving(AtATime(meridian, clock, middle_of_month(back)), data, "--compact-every", "off") as server:
            if site is None:
                site = Site(meridian, data, clock, Night(server, 19), {})
            site.night.moved(server)
            for _ in range(2):
                site.night.change(12)
                site.night.publish(server)
            site.note(server)
    assert site is not None
    return site


@pytest.fixture
def site(made: Site, tmp_path: Path) -> Site:
    """The same in a data directory of the test's own."""
    data = Path(shutil.copytree(made.data, tmp_path / "data"))
    # A server is where the test has one: `Night.moved`.
    night = deepcopy(made.night, {id(made.night.model.database): None})
    return replace(made, data=data, night=night, answers=dict(made.answers))


def test_each_month_becomes_one_part_and_no_answer_changes(meridian: Meridian, site: Site) -> None:
    before = {table: site.parts(table) for table in TABLES}
    per_month = [month(2)] * 2 + [month(1)] * 2 + [month(0)] * 2
    for table in TABLES:
        assert [it for it in site.months(table) if it == month(1)], table
    # An empty table's first part is of the first month as well.
    assert [it for it in site.months("Edition") if it != month(2)] == per_month[2:]
    with serving(meridian, site.data, "--compact-every", "off") as server:
        site.night.moved(server)
        told = site.sort("--dry-run")
        assert told.status == 0 and "would have" in told.text and f"one part, month {month(2)} of " in told.text, told.text
        assert {table: site.parts(table) for table in TABLES} == before
        told = site.sort("--month", month(1))
        assert told.status == 0 and f"month {month(1)}: " in told.text and month(2) not in told.text, told.text
        site.assert_same(server)
        told = site.sort()
        assert told.status == 0 and f"month {month(2)}: " in told.text, told.text
        for table in TABLES:
            months = site.months(table)
            assert months.count(month(2)) == months.count(month(1)) == 1, (table, months)
            for back in (2, 1):
                [part] = [part for part in site.parts(table) if str(part["loaded"]).startswith(month(back))]
                if "merged_from" in part:
                    assert part["from"] == f"month {month(back)}"
                wanted = [it for it in before[table] if str(it["loaded"]).startswith(month(back))]
                assert part["rows"] == sum(int(str(it["rows"])) for it in wanted)
                assert part["loaded"] == max(str(it["loaded"]) for it in wanted)
        assert "Nothing to sort" in site.sort().text
        # It is not merged with anything any more, however often parts are merged.
        sorted_parts = [part["part"] for part in site.parts("DiaSourceStored")][:2]
        for _ in range(3):
            site.night.change(2)
            site.night.publish(server)
        meridian.must("compact", "--data", site.data, "--db", "prompt")
        assert [part["part"] for part in site.parts("DiaSourceStored")][:2] == sorted_parts
        assert len(site.parts("Edition")) == 3, "the current month's are merged by size"
        site.assert_same(server)
    # Next month its parts become one, too.
    later = AtATime(meridian, site.clock, middle_of_month(0) + timedelta(days=31))
    later.must("alerts", "sort", "prompt", "--data", site.data, "--quiet")
    assert site.months("Edition") == [month(2), month(1), month(0)]
    with serving(meridian, site.data) as server:
        site.assert_same(server)
    check(meridian, site.data)


def test_what_cannot_be_sorted(meridian: Meridian, tmp_path: Path) -> None:
    create(meridian, tmp_path)
    run = lambda *words: meridian.run("alerts", "sort", *words, "--data", tmp_path)  # noqa: E731
    for words, complaint in (
        (["prompt"], "nothing is published of prompt"),
        (["prompt", "--month", month(0)], f"{month(0)} is not over"),
        (["prompt", "--month", "2026-13"], "such as 2026-10"),
        (["prompt", "--month", "October"], "such as 2026-10"),
        (["other"], "other"),
    ):
        outcome = run(*words)
        assert outcome.status != 0 and complaint in outcome.complaint, (words, outcome.complaint)


def test_a_killed_sort_leaves_the_old_list_or_the_new_one(meridian: Meridian, site: Site) -> None:
    """At each step, and at random moments; a server that reads and stores goes on."""
    dice = random.Random(3)
    with serving(meridian, site.data, "--compact-every", "off") as server:
        site.night.moved(server)
        for phase in PHASES:
            killed = site.sort("--rate", "none", fault=f"{phase}:kill")
            assert killed.status == -signal.SIGKILL, killed.complaint
            site.assert_same(server, 1)
        for _ in range(KILLS):
            process = meridian.start("alerts", "sort", "prompt", "--data", site.data)
            time.sleep(dice.uniform(0.0, 1.0))
            process.kill()
            process.communicate()
            site.night.change(4)
            site.night.publish(server)
            site.assert_same(server, 1)
        told = site.sort()
        assert told.status == 0, told.complaint
        for table in TABLES:
            assert site.months(table).count(month(1)) == 1
        site.assert_same(server)
    assert not list(site.data.glob("tables/**/spill")), "what was killed has left files"
    check(meridian, site.data)


def test_a_server_that_is_killed_while_it_sorts(meridian: Meridian, site: Site) -> None:
    """It sorts by itself, in a process of its own, which ends with it."""
    dice = random.Random(4)
    for _ in range(KILLS):
        server = Server(meridian, site.data, "--compact-every", 1)
        try:
            site.night.moved(server)
            site.night.change(3)
            time.sleep(dice.uniform(0.5, 3.0))
        finally:
            server.stop(signal.SIGKILL)
        with serving(meridian, site.data, "--compact-every", "off") as server:
            site.night.moved(server)
            site.night.publish(server)
            site.assert_same(server, 1)
    with serving(meridian, site.data, "--compact-every", 1) as server:
        done = lambda: all(site.months(table).count(month(back)) <= 1 for table in [*TABLES, "Edition"] for back in (2, 1))  # noqa: E731
        wait_until(done, 120, "the months are sorted")
        site.assert_same(server)
    check(meridian, site.data)


def test_what_changes_while_a_month_is_sorted(meridian: Meridian, site: Site) -> None:
    """New versions, other objects of sources, withdrawals and ends, published between the reading of a month and its new part. Pipelines
    read rows that only the archive has."""
    with serving(meridian, site.data, "--compact-every", "off") as server:
        site.night.moved(server)
        site.night.model.database.set_metadata("config:keep_nights", "0", replace=True)
        site.night.change(2)
        site.night.publish(server)
        check_reads(site.night)
        process = meridian.start("alerts", "sort", "prompt", "--data", site.data, env={"MERIDIAN_FAULT": "manifest-written:stop"})
        state = Path(f"/proc/{process.pid}/stat")
        stops = 0

        def is_stopped() -> bool:
            return process.poll() is not None or state.read_text().rsplit(")", 1)[1].split()[0] == "T"

        while True:
            wait_until(is_stopped, 120, "is stopped")
            if process.poll() is not None:
                break
            stops += 1
            if stops <= 4:
                site.night.change(8)
                site.night.publish(server)
                site.note(server)
                check_reads(site.night)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        process.communicate()
        assert process.returncode == 0 and stops >= 6, stops
        for table in TABLES:
            assert site.months(table).count(month(1)) == 1
        site.assert_same(server)
        check_reads(site.night)
    check(meridian, site.data)


def test_a_release_takes_the_place_while_a_month_is_sorted(meridian: Meridian, site: Site, tmp_path: Path) -> None:
    """What is sorted is not there any more then: the sort begins anew with what there is."""
    with serving(meridian, site.data, "--compact-every", "off") as server:
        site.night.moved(server)
        process = meridian.start("alerts", "sort", "prompt", "--data", site.data, env={"MERIDIAN_FAULT": "read:stop"})
        state = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: state.read_text().rsplit(")", 1)[1].split()[0] == "T", 120, "is stopped")
        starts = sorted(start for _, start in site.night.model.versions)
        cut = round(starts[len(starts) // 2] + 1e-6, 7)
        release = release_of(site.night.model, cut, 5 * 10**6)
        outcome = meridian.run("alerts", "reseed", "prompt", "--data", site.data, "--release", release.write(tmp_path / "release"), "--cut", repr(cut))
        assert outcome.status == 0, outcome.complaint
        take_place(site.night.model, release)
        process.send_signal(signal.SIGCONT)
        process.communicate()
        assert process.returncode == 0
        check_reads(site.night)
        site.night.change(6)
        site.night.publish(server)
    check(meridian, site.data)
