"""An alert database beside workers: what is published is answered by them, now and as of any time, as by a server alone."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from alert_model import PUBLISHED_COLUMNS  # noqa: E402
from cluster_members import cluster_of  # noqa: E402
from meridian_cli import Meridian  # noqa: E402
from serving import serving  # noqa: E402
from test_alerts_published import Night, answers_as_of, as_mysql, check, check_history, create, execute  # noqa: E402


def test_workers_answer_as_of_any_time(meridian: Meridian, tmp_path: Path) -> None:
    """With the bytes of a server alone, before and after parts are published and merged, and of two times in one statement."""
    data = tmp_path / "data"
    create(meridian, data)
    with serving(meridian, data, "--compact-every", "off") as server:
        night = Night(server, 23)
        for _ in range(2):
            night.change(16)
            night.publish(server)
        answers = {at: answers_as_of(server, at) for at, _ in night.history}
    with cluster_of(meridian, tmp_path / "cluster", data, 2, 1, "--compact-every", "off") as cluster:
        night.moved(cluster.server)

        def assert_same() -> None:
            ran = sum(cluster.pieces().values())
            for at, wanted in answers.items():
                assert answers_as_of(cluster.server, at) == wanted, at
            with cluster.server.connect(database="prompt") as connection:
                check_history(connection, night)
                for at, state in night.history:
                    for table, columns in PUBLISHED_COLUMNS.items():
                        named = ", ".join(f"`{column}`" for column in columns)
                        found = execute(connection, f"SELECT {named} FROM {table} AS OF '{at}'")
                        assert sorted(found, key=repr) == as_mysql(state[table]), (at, table)
                (first, before), (last, after) = night.history[0], night.history[-1]
                statement = f"SELECT COUNT(*) FROM DiaSource AS OF '{last}' s WHERE s.diaSourceId NOT IN (SELECT diaSourceId FROM DiaSource AS OF '{first}')"
                assert execute(connection, statement) == [(len(after["DiaSource"]) - len(before["DiaSource"]),)]
            assert sum(cluster.pieces().values()) > ran, "the workers have answered"

        assert_same()
        night.change(12)
        night.publish(cluster.server)
        at = night.history[-1][0]
        cluster.wait_for_replicas()
        answers[at] = answers_as_of(cluster.server, at)
        meridian.must("compact", "--data", data, "--db", "prompt", "--all")
        assert_same()
    with serving(meridian, data) as server:
        assert answers_as_of(server, at) == answers[at]
    check(meridian, data)
