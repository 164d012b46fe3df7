"""`SSObject`: objects of the solar system beside the sources of all of the sky, as a table of the operator's or as a view."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pymysql
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from alert_model import PUBLISHED_COLUMNS  # noqa: E402
from meridian_cli import Meridian  # noqa: E402
from serving import serving  # noqa: E402
from test_alerts_published import SCHEMA, Night, State, execute, check  # noqa: E402

SOURCE = PUBLISHED_COLUMNS["DiaSource"]
MIDPOINT, WITHDRAWN, OBJECT = (SOURCE.index(name) for name in ("midpointMjdTai", "timeWithdrawnMjdTai", "ssObjectId"))


def counted(state: State, *, with_withdrawn: bool = False) -> list[tuple[Any, ...]]:
    """Of each object of the solar system: how many sources it has, and the first and last time."""
    times: dict[int, list[float]] = {}
    for row in state["DiaSource"]:
        if row[OBJECT] is not None and (with_withdrawn or row[WITHDRAWN] is None):
            times.setdefault(row[OBJECT], []).append(row[MIDPOINT])
    return sorted((number, len(found), min(found), max(found)) for number, found in times.items())


def test_a_schema_without_it_has_a_view(meridian: Meridian, tmp_path: Path) -> None:
    """What its sources tell of each object, as of any time."""
    text = re.sub(r"- name: SSObject\n(  .*\n)+", "", SCHEMA.read_text())
    schema = tmp_path / "schema.yaml"
    schema.write_text(text)
    data = tmp_path / "data"
    meridian.must("alerts", "create", "prompt", "--data", data, "--schema", schema, "--replica")
    with serving(meridian, data) as server:
        night = Night(server, 3)
        for _ in range(3):
            night.change(20)
            for _ in range(3):
                night.model.to_solar_system()
                night.model.withdraw()
            night.publish(server)
        everything = [counted(state) for _, state in night.history]
        assert len(everything[-1]) > 2 and everything[0] != everything[-1]
        assert any(counted(state) != counted(state, with_withdrawn=True) for _, state in night.history), "some are withdrawn"
        for is_merged in (False, True):
            if is_merged:
                meridian.must("compact", "--data", data, "--db", "prompt", "--all")
            with server.connect(database="prompt") as connection:
                assert execute(connection, "SELECT * FROM SSObject ORDER BY ssObjectId") == everything[-1]
                for (at, _), wanted in zip(night.history, everything, strict=True):
                    assert execute(connection, f"SELECT * FROM SSObject AS OF '{at}' ORDER BY ssObjectId") == wanted, at
                number = everything[-1][0][0]
                joined = f"SELECT COUNT(*) FROM SSObject o JOIN DiaSource s USING (ssObjectId) WHERE ssObjectId = {number}"
                of_all = counted(night.history[-1][1], with_withdrawn=True)
                assert execute(connection, joined) == [(next(row[1] for row in of_all if row[0] == number),)]
    check(meridian, data)


def test_a_schema_with_it_has_a_table(meridian: Meridian, tmp_path: Path) -> None:
    """It is there without rows, and the operator's rows stay whatever is published; it is joined to the sources of all chunks."""
    data = tmp_path / "data"
    meridian.must("alerts", "create", "prompt", "--data", data, "--schema", SCHEMA, "--replica")
    with serving(meridian, data) as server:
        night = Night(server, 4)
        night.change(24)
        night.model.to_solar_system()
        night.publish(server)
        numbers = [row[0] for row in counted(night.history[-1][1], with_withdrawn=True)]
        assert numbers
        with server.connect(database="prompt") as connection:
            assert execute(connection, "SELECT COUNT(*) FROM SSObject") == [(0,)]
            columns = "SELECT COLUMN_NAME, COLUMN_COMMENT FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'prompt' AND TABLE_NAME = 'SSObject'"
            assert dict(execute(connection, columns)) == {"ssObjectId": "Number.", "arc": "Arc of observations.", "flags": "Flags."}
        # Every second object has an orbit, and one has that has no sources.
        lines = [f"{number},{number % 7 + 0.5},{number % 2}" for number in [*numbers[::2], 77]]
        orbits = tmp_path / "orbits.csv"
        orbits.write_text("\n".join(["ssObjectId,arc,flags", *lines]) + "\n")
        meridian.load(data, "prompt", "SSObject", orbits, replace=True)
        night.change(12)
        night.publish(server)
        state = night.history[-1][1]
        rows = [row for row in state["DiaSource"] if row[OBJECT] in numbers[::2]]
        with server.connect(database="prompt") as connection:
            joined = "SELECT COUNT(*), COUNT(DISTINCT o.ssObjectId), MAX(s.midpointMjdTai) FROM DiaSource s JOIN SSObject o ON s.ssObjectId = o.ssObjectId"
            assert execute(connection, joined) == [(len(rows), len({row[OBJECT] for row in rows}), max(row[MIDPOINT] for row in rows))]
            without = "SELECT o.ssObjectId FROM SSObject o LEFT JOIN DiaSource s ON s.ssObjectId = o.ssObjectId WHERE s.diaSourceId IS NULL"
            assert (77,) in execute(connection, without)
            with pytest.raises(pymysql.MySQLError, match="has no states") as raised:
                execute(connection, f"SELECT * FROM SSObject AS OF '{night.history[0][0]}'")
            assert raised.value.args[0] == 4124
    check(meridian, data)
