"""Alert databases whose published parts have their home in an object store: pipelines and users read the same, now and as of any time."""

from __future__ import annotations

from pathlib import Path

from meridian_cli import Meridian
from object_store import Store
from serving import serving, wait_until
from test_alerts_emptied import check_reads
from test_alerts_published import Night, answers_as_of, check, check_history, create
from test_home_in_store import environment, here, home, keys, names_of, place, store, told

__all__ = ["environment", "place", "store"]

SECONDS = 120


def test_published_parts_are_read_from_home(meridian: Meridian, store: Store, place: str, tmp_path: Path) -> None:  # noqa: F811
    data = tmp_path / "data"
    create(meridian, data)
    with serving(meridian, data, "--compact-every", "off") as server:
        night = Night(server, 23)
        # Pipelines read rows that only the archive has.
        night.model.database.set_metadata("config:keep_nights", "0", replace=True)
        night.change()
        night.publish(server)
        at = night.history[-1][0]
        wanted = answers_as_of(server, at)
        told(home(meridian, data, "set", place, "--cache", "0"))
        night.change()
        night.publish(server)
        wait_until(lambda: not here(data), SECONDS, "the server has copied all files")
        assert keys(store, place) == names_of(data)
    # A server that has nothing in memory.
    with serving(meridian, data, "--compact-every", "off") as server:
        night.moved(server)
        assert answers_as_of(server, at) == wanted
        check_reads(night)
        # Changes of rows that are at home, which merges write anew.
        night.change()
        night.publish(server)
        meridian.must("compact", "--data", data, "--db", "prompt", "--all")
        wait_until(lambda: not here(data), SECONDS, "the server has copied what was merged")
        assert answers_as_of(server, at) == wanted
        check_reads(night)
        with server.connect(database="prompt") as connection:
            check_history(connection, night)
        check(meridian, data)
    told(home(meridian, data, "unset", "--delete-objects"))
    assert not keys(store, place)
    check(meridian, data)
    with serving(meridian, data) as server:
        night.moved(server)
        assert answers_as_of(server, at) == wanted
        check_reads(night)
