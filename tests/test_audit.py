"""The audit log: a line for each statement, request and login, without secrets, and never in the way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest
import requests

from meridian_cli import Meridian
from serving import serving
from small_tables import load_stars_and_bands
from test_users import PASSWORD, Site, must, rejection


def entries(path: Path) -> list[dict[str, object]]:
    lines = [line for name in sorted(path.parent.glob(path.name + "*"), reverse=True) for line in name.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def found(path: Path, wanted: Callable[[dict[str, object]], bool]) -> dict[str, object]:
    """The first line of its kind, which is written a moment after what it tells of."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if path.exists() and (matching := [entry for entry in entries(path) if wanted(entry)]):
            return matching[0]
        time.sleep(0.05)
    raise AssertionError(path.read_text())


def test_statements_requests_and_logins(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 50)
    must(meridian, data, "add", "boss", "--admin", password=PASSWORD)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    log = tmp_path / "logs" / "audit.log"
    log.parent.mkdir()
    with serving(meridian, data, "--audit-log", log) as server:
        site = Site(meridian, data, server)
        with site.connect("ann") as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT id FROM sky.Star WHERE id < 7")
            cursor.fetchall()
            cursor.execute("SELECT id FROM sky.Star WHERE id = 3")
            assert rejection(connection, "SELECT nosuch FROM sky.Star")[0] == 1054
            cursor.execute("SUBMIT SELECT COUNT(*) FROM sky.Band")
            number = cursor.fetchone()[0]
        with site.connect("boss") as boss:
            boss.cursor().execute("CREATE USER eve IDENTIFIED BY 'hidden'")
        with pytest.raises(pymysql.err.MySQLError):
            site.connect("ann", "wrong")
        assert site.http("me", "ann", "hidden too")[0] == 401
        assert site.http("scs/sky/Star", "ann", RA=10, DEC=10, SR=1)[0] == 200
        assert site.http("tap/sync", "ann", LANG="ADQL", FORMAT="csv", QUERY="SELECT COUNT(*) FROM sky.Star")[0] == 200
        assert site.http("healthz", None)[0] == 200
        for statement, form in [("CREATE TABLE ann.kept AS SELECT * FROM sky.Band", "grant=boss"), ("CREATE TABLE ann.more AS SELECT 1 AS a", "expire=3")]:
            with site.connect("ann") as connection:
                connection.cursor().execute(statement)
            table = statement.split()[2]
            login = requests.auth.HTTPBasicAuth("ann", PASSWORD)
            assert requests.post(server.url(f"/tables/{table}"), data=form, auth=login, timeout=60).ok
            # Who may read a table now, and until when it is kept, stands in the form alone.
            assert found(log, lambda it, text=f"POST /tables/{table} {form}": it.get("text") == text)["user"] == "ann"

        select = found(log, lambda it: it.get("text") == "SELECT id FROM sky.Star WHERE id < 7")
        assert (select["event"], select["user"], select["protocol"], select["rows"]) == ("statement", "ann", "mysql", 7)
        assert str(select["from"]).startswith("127.0.0.1:") and select["outcome"] == "ok" and select["code"] is None
        assert isinstance(select["seconds"], float) and str(select["time"]).startswith("20")
        assert found(log, lambda it: it.get("text") == "SELECT id FROM sky.Star WHERE id = 3")["rows"] == 1
        failed = found(log, lambda it: "nosuch" in str(it.get("text")))
        assert failed["outcome"] != "ok" and failed["code"] == 1054
        query = found(log, lambda it: it.get("event") == "query")
        assert (query["id"], query["user"], query["rows"], query["outcome"]) == (number, "ann", 1, "ok")
        assert "'<secret>'" in str(found(log, lambda it: "CREATE USER" in str(it.get("text")))["text"])
        for protocol in ("mysql", "http"):
            wrong = found(log, lambda it, protocol=protocol: it["event"] == "login" and it["protocol"] == protocol and it["outcome"] == "rejected")  # type: ignore[misc]
            assert wrong["user"] == "ann" and wrong["code"] == 1045
        assert found(log, lambda it: it["event"] == "login" and it["outcome"] == "ok")["user"] == "ann"
        cone = found(log, lambda it: "scs/sky/Star" in str(it.get("text")))
        assert (cone["event"], cone["user"], cone["code"]) == ("request", "ann", 200) and "SR=1" in str(cone["text"])
        assert found(log, lambda it: it["event"] == "statement" and it["protocol"] == "http")["rows"] == 1
        assert found(log, lambda it: it.get("code") == 401)["outcome"] == "rejected"
    text = log.read_text()
    assert "hidden" not in text and PASSWORD not in text and "healthz" not in text
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_written_is_in_nobodys_way(meridian: Meridian, tmp_path: Path) -> None:
    data = load_stars_and_bands(meridian, tmp_path, 50)
    log = tmp_path / "logs" / "audit.log"
    refused = meridian.run("serve", "--data", data, "--mysql", "127.0.0.1:0", "--http", "off", "--audit-log", log)
    assert refused.status != 0 and "audit.log" in refused.complaint
    log.parent.mkdir()
    with serving(meridian, data, "--audit-log", log, "--audit-log-size", "4K", "--audit-log-files", 2) as server, server.connect() as connection:
        cursor = connection.cursor()
        for number in range(60):
            cursor.execute(f"SELECT {number}")
        found(log, lambda it: it.get("text") == "SELECT 59")
        assert sorted(path.name for path in log.parent.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
        log.parent.rename(tmp_path / "moved")
        for _ in range(5):
            cursor.execute("SELECT 'while it is away'")
        deadline = time.monotonic() + 20
        while "the audit log cannot be written" not in server.log and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "the audit log cannot be written" in server.log
        log.parent.mkdir()
        cursor.execute("SELECT 'here again'")
        found(log, lambda it: it.get("text") == "SELECT 'here again'")
        lost = found(log, lambda it: it.get("event") == "lost")
        assert isinstance(lost["lines"], int) and 1 <= lost["lines"] <= 5
