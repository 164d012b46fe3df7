"""Loads that are killed, loads that run at once, readers meanwhile: the old state or the new one, never between."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from complaints import assert_rejected
from meridian_cli import Meridian, load_arguments
from small_tables import CHILD, DIRECTOR, chunk_files, count_of, write_lines, write_stars

PHASES = ["begun", "read", "partitioned", "index-written", "chunks-written", "overlap-written", "manifest-written", "before-publish"]
STATE = "SELECT count(*), min(version), max(version), sum(id) FROM Star"
OLD_ROWS, NEW_ROWS = 1500, 2500


def state(rows: int, version: int) -> tuple[object, ...]:
    """What STATE gives for a whole table."""
    return (rows, version, version, rows * (rows - 1) // 2)


OLD, NEW = state(OLD_ROWS, 1), state(NEW_ROWS, 2)


@contextmanager
def reader(meridian: Meridian, data: Path) -> Iterator[list[object]]:
    """Queries all the while; gives the list of what it saw, of which a rejection is an element too."""
    seen: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                seen.extend(meridian.rows(data, "sky", STATE))
            except AssertionError as rejection:
                seen.append(str(rejection))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The old and the new rows."""
    directory = tmp_path_factory.mktemp("stars")
    return {
        "old": write_stars(directory / "old.csv", OLD_ROWS, 1),
        "new": write_stars(directory / "new.csv", NEW_ROWS, 2),
    }


def replace(meridian: Meridian, data: Path, path: Path, fault: str | None = None) -> int:
    """Loads `path` in place of Star; gives the exit status."""
    arguments = load_arguments(data, "sky", "Star", path, replace=True, **DIRECTOR)
    return meridian.run(*arguments, env={"MERIDIAN_FAULT": fault} if fault else None).status


def assert_only(seen: list[object], *states: tuple[object, ...]) -> None:
    """Every answer that a reader had was one of the whole states."""
    assert seen, "the reader never had an answer"
    others = [answer for answer in seen if answer not in states]
    assert not others, f"{len(others)} of {len(seen)} answers were neither old nor new, first: {others[0]}"


@pytest.mark.parametrize("phase", [*PHASES, "after-publish"])
def test_killed_at_a_phase(meridian: Meridian, tmp_path: Path, files: dict[str, Path], phase: str) -> None:
    data = tmp_path / "data"
    meridian.load(data, "sky", "Star", files["old"], **DIRECTOR)
    with reader(meridian, data) as seen:
        assert replace(meridian, data, files["new"], f"{phase}:kill") == -signal.SIGKILL
    assert_only(seen, OLD, NEW)
    expected = NEW if phase == "after-publish" else OLD
    assert meridian.rows(data, "sky", STATE) == [expected]
    meridian.must("check", "--data", data)
    assert replace(meridian, data, files["new"]) == 0, "the killed load still holds the table"
    assert meridian.rows(data, "sky", STATE) == [NEW]
    assert_no_leftovers(data)


def assert_no_leftovers(data: Path) -> None:
    """After a whole load, one load's files are left and nothing unfinished."""
    loads = {path.parent for path in chunk_files(data)}
    assert len(loads) == 1, f"files of {len(loads)} loads remain: {sorted(map(str, loads))}"
    unfinished = [path for path in data.rglob("*") if path.suffix == ".tmp"]
    assert not unfinished, f"unfinished files remain: {unfinished[:3]}"


@pytest.mark.parametrize("phase", [*PHASES, "after-publish"])
def test_first_load_killed(meridian: Meridian, tmp_path: Path, files: dict[str, Path], phase: str) -> None:
    data = tmp_path / "data"
    outcome = meridian.run(
        *load_arguments(data, "sky", "Star", files["old"], **DIRECTOR), env={"MERIDIAN_FAULT": f"{phase}:kill"}
    )
    assert outcome.status == -signal.SIGKILL
    answer = meridian.run("sql", "--data", data, "--db", "sky", "--format", "csv", STATE)
    if phase == "after-publish":
        assert answer.status == 0, answer.complaint
    else:
        assert_rejected(answer)
        assert replace(meridian, data, files["old"]) == 0
    assert meridian.rows(data, "sky", STATE) == [OLD]
    meridian.must("check", "--data", data)


@pytest.mark.parametrize("phase", ["partitioned", "chunks-written", "before-publish"])
def test_child_killed(meridian: Meridian, tmp_path: Path, files: dict[str, Path], phase: str) -> None:
    data = tmp_path / "data"
    meridian.load(data, "sky", "Star", files["old"], **DIRECTOR)
    lines = [f"{n},{n % OLD_ROWS},{n}" for n in range(3000)]
    spots = write_lines(tmp_path / "Spot.csv", lines, header="spot,id,flux")
    arguments = load_arguments(data, "sky", "Spot", spots, **CHILD)
    assert meridian.run(*arguments, env={"MERIDIAN_FAULT": f"{phase}:kill"}).status == -signal.SIGKILL
    assert_rejected(meridian.run("sql", "--data", data, "--db", "sky", "SELECT count(*) FROM Spot"), "Spot")
    assert meridian.run(*arguments).status == 0
    assert count_of(meridian, data, "Spot") == 3000


def test_an_error_at_a_phase_leaves_nothing(meridian: Meridian, tmp_path: Path, files: dict[str, Path]) -> None:
    data = tmp_path / "data"
    meridian.load(data, "sky", "Star", files["old"], **DIRECTOR)
    for phase in PHASES:
        arguments = load_arguments(data, "sky", "Star", files["new"], replace=True, **DIRECTOR)
        assert_rejected(meridian.run(*arguments, env={"MERIDIAN_FAULT": f"{phase}:error"}), phase)
        assert meridian.rows(data, "sky", STATE) == [OLD]
    assert_no_leftovers(data)


def test_killed_at_random_moments(meridian: Meridian, tmp_path: Path, files: dict[str, Path]) -> None:
    data = tmp_path / "data"
    started = time.monotonic()
    meridian.load(data, "sky", "Star", files["old"], **DIRECTOR)
    whole = time.monotonic() - started
    chance = random.Random(11)
    with reader(meridian, data) as seen:
        for _ in range(8):
            arguments = load_arguments(data, "sky", "Star", files["new"], replace=True, **DIRECTOR)
            process = meridian.start(*arguments)
            time.sleep(chance.uniform(0.0, 2.0 * whole))
            process.kill()
            process.communicate()
            assert meridian.rows(data, "sky", STATE)[0] in (OLD, NEW)
    assert_only(seen, OLD, NEW)
    meridian.must("check", "--data", data)
    assert replace(meridian, data, files["old"]) == 0
    assert meridian.rows(data, "sky", STATE) == [OLD]
    assert_no_leftovers(data)


def test_replacing_while_others_read(meridian: Meridian, tmp_path: Path, files: dict[str, Path]) -> None:
    data = tmp_path / "data"
    meridian.load(data, "sky", "Star", files["old"], **DIRECTOR)
    with reader(meridian, data) as seen, reader(meridian, data) as seen_too:
        for path in (files["new"], files["old"], files["new"]):
            assert replace(meridian, data, path) == 0
    assert_only(seen + seen_too, OLD, NEW)
    assert {OLD, NEW} & set(seen + seen_too)
    assert meridian.rows(data, "sky", STATE) == [NEW]


def test_second_load_is_rejected_and_told_who_loads(meridian: Meridian, tmp_path: Path) -> None:
    data = tmp_path / "data"
    large = write_stars(tmp_path / "large.csv", 60_000)
    arguments = load_arguments(data, "sky", "Star", large, **DIRECTOR)
    first = meridian.start(*arguments)
    wait_until_begun(data, first.pid)
    first.send_signal(signal.SIGSTOP)
    try:
        assert_rejected(meridian.run(*arguments), "Star", str(first.pid))
        other = meridian.run(*load_arguments(data, "other", "Star", write_stars(tmp_path / "s.csv", 50), **DIRECTOR))
        assert other.status == 0, f"a load of another table was held up: {other.complaint}"
    finally:
        first.send_signal(signal.SIGCONT)
    _, complaint = first.communicate()
    assert first.returncode == 0, complaint.decode()
    assert count_of(meridian, data) == 60_000


def wait_until_begun(data: Path, pid: int) -> None:
    """Waits until a process holds a load's lock and is done with recording the load, for which it locks the catalog."""
    until = time.monotonic() + 60.0
    while time.monotonic() < until:
        locked = any(str(pid) in path.read_text() for path in data.glob("locks/*.lock"))
        if locked and any(data.glob("tables/*/*/index")):
            return
        time.sleep(0.005)
    raise AssertionError("the load never began")
