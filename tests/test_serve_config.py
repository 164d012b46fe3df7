"""The configuration of `meridian serve`: what counts before what, what is rejected and how, what is logged and counted, what systemd is
told."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pymysql
import pytest

from complaints import assert_rejected
from meridian_cli import Meridian, Outcome
from serving import SOON, Server, serving, wait_until
from small_tables import DIRECTOR, write_stars

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
OPTIONS = (
    "data", "mysql", "mysql-socket", "http", "threads", "memory", "cache", "temp-dir", "temp-size", "max-connections", "max-connections-per-address", "http-hosts", "http-timeout", "grace",
    "queries-at-once", "max-result", "keep-results", "max-blocking", "result-cache", "compact-every", "home-rate", "slow", "audit-log", "audit-log-size", "audit-log-files", "tls-cert", "tls-key", "mysql-native-password", "oidc-issuer", "oidc-audience", "oidc-user-claim", "oidc-groups-claim", "oidc-groups", "cluster", "cluster-advertise", "cluster-secret", "cluster-tls", "replicas", "keep-files", "lost-after", "stalled-after", "shuffle-above", "insecure", "log", "log-format",
)  # fmt: skip
# The variables of those who run the tests would count before the files that are tested.
NOBODY_SAYS = {"RUST_LOG": "", **{f"MERIDIAN_{key.upper().replace('-', '_')}": "" for key in (*OPTIONS, "config")}}


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some stars over the whole sky."""
    directory = tmp_path_factory.mktemp("config")
    meridian.load(directory / "data", "sky", "Star", write_stars(directory / "stars.csv", 500), **DIRECTOR)
    return directory / "data"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Where a configuration may be written."""
    return tmp_path / "meridian.toml"


def shown(meridian: Meridian, *arguments: object, env: dict[str, str] | None = None) -> Outcome:
    """What --show-config prints."""
    outcome = meridian.run("serve", "--show-config", *arguments, env={**NOBODY_SAYS, **(env or {})})
    assert outcome.status == 0, outcome.complaint
    return outcome


def origins(text: str) -> dict[str, str]:
    """Where each value comes from: what stands behind it."""
    found = re.findall(r"^([\w-]+) = .* # (.+)$", text, re.MULTILINE)
    return dict(found)


def execute(server: Server, statement: str) -> tuple[tuple[object, ...], ...]:
    """The rows of an answer."""
    with server.connect() as connected, connected.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


# What counts before what.


def test_flags_count_before_the_environment_and_that_before_the_file(meridian: Meridian, config: Path) -> None:
    config.write_text("data = 'a'\nthreads = 3\ngrace = 3\nmemory = '3M'\n")
    env = {"MERIDIAN_THREADS": "2", "MERIDIAN_GRACE": "2"}
    text = shown(meridian, "--config", config, "--threads", 1, env=env).text
    values = tomllib.loads(text)
    assert (values["threads"], values["grace"], values["memory"], values["max-connections"]) == (1, 2, "3M", 500)
    where = origins(text)
    assert where["threads"] == "--threads"
    assert where["grace"] == "MERIDIAN_GRACE"
    assert where["memory"] == f"{config}:4"
    assert where["max-connections"] == "the default"
    assert "a third" in where["cache"]


def test_every_option_is_in_every_place(meridian: Meridian, config: Path) -> None:
    values = {
        "data": "somewhere", "mysql": "127.0.0.1:1", "mysql-socket": "here.sock", "http": "off", "threads": 1, "memory": "1G", "cache": "0", "temp-dir": "scratch", "temp-size": "9G",
        "max-connections": 9, "max-connections-per-address": 8, "http-hosts": "a.example,b", "http-timeout": 7,
        "grace": 9, "queries-at-once": 3, "max-result": "1G", "keep-results": 0.5, "max-blocking": 60, "result-cache": 2, "compact-every": 30, "home-rate": "9M", "slow": 0.25, "log": "debug", "log-format": "json",
        "audit-log": "audit.log", "audit-log-size": "3M", "audit-log-files": 4,
        "tls-cert": "server.pem", "tls-key": "server.key", "insecure": "yes", "mysql-native-password": "yes",
        "oidc-issuer": "https://login.example", "oidc-audience": "meridian", "oidc-user-claim": "sub", "oidc-groups-claim": "roles", "oidc-groups": "a,b",
        "cluster": "127.0.0.1:7600", "cluster-advertise": "127.0.0.1:7601", "cluster-secret": "secret", "cluster-tls": "tls", "replicas": 2, "keep-files": "500G", "lost-after": 30, "stalled-after": 20, "shuffle-above": 0,
    }  # fmt: skip
    assert set(values) == set(OPTIONS)
    flags = [part for key, value in values.items() for part in (f"--{key}", value)]
    variables = {f"MERIDIAN_{key.upper().replace('-', '_')}": str(value) for key, value in values.items() if key != "log"}
    config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    for arguments, env in [(flags, {}), ([], {**variables, "RUST_LOG": "debug"}), (["--config", config], {})]:
        read = tomllib.loads(shown(meridian, *arguments, env=env).text)
        assert {key: str(value) for key, value in read.items()} == {key: str(value) for key, value in values.items()}


def test_what_is_shown_is_a_file_that_says_the_same(meridian: Meridian, config: Path) -> None:
    config.write_text("data = 'a \"b\" # c'\nslow = 0.5\n[scs.'sky.Star']\ncolumns = ['id', 'ra']\n")
    first = shown(meridian, "--config", config, "--mysql", "off").text
    config.write_text(first)
    second = shown(meridian, "--config", config).text
    assert tomllib.loads(first) == tomllib.loads(second)
    assert tomllib.loads(first)["scs"] == {"sky.Star": {"columns": ["id", "ra"]}}
    assert f"{config}:" in second and second.count("the default") == 0


def test_variables_that_are_empty_say_nothing(meridian: Meridian) -> None:
    text = shown(meridian, env={"MERIDIAN_THREADS": "", "MERIDIAN_CONFIG": ""}).text
    assert tomllib.loads(text)["threads"] == len(os.sched_getaffinity(0))
    assert "data is needed" in text


def test_the_example_says_what_is_so_anyway(meridian: Meridian, config: Path) -> None:
    """The file in deploy/ has every key, and what it has commented out is what is usual."""
    example = (DEPLOY / "meridian.toml").read_text()
    usual = tomllib.loads(shown(meridian).text)
    written = dict(re.findall(r"^#?([a-z-]+) = (.+)$", example, re.MULTILINE))
    assert set(written) == {*OPTIONS, "columns"}
    for key in set(usual) - {"threads", "memory", "cache"}:
        assert tomllib.loads(f"x = {written[key]}")["x"] == usual[key], key
    uncommented = re.sub(r"^#(?=[a-z\[])", "", example, flags=re.MULTILINE)
    config.write_text(uncommented)
    read = tomllib.loads(shown(meridian, "--config", config).text)
    assert read == tomllib.loads(uncommented)


# What is rejected.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\nthread = 2", (":2: there is no key thread", "did you mean threads?")),
        ("data = 'x'\nthreads = 0", (":2: threads:", '"0"', "whole number from 1")),
        ("memory = '8 pounds'", (":1: memory:", "8 pounds", "8G")),
        ("mysql = 4040", (":1: mysql:", "127.0.0.1:4040")),
        ("log-format = 'xml'", (":1: log-format:", "text or json")),
        ("grace = [1]", (":1: grace:", "one text or number")),
        ("data = 'x'\n\ngrace = 1 2", (":3:", "TOML")),
        ("[scs.sky.Star]\ncolumns = ['id']", (":1:", 'sky.Object"]')),
        ("[scs.'sky.Star']\ncolums = ['id']", (":2:", "did you mean columns?")),
        ("threads = 1", ("data is needed", "--data", "MERIDIAN_DATA")),
    ],
)
def test_files_with_mistakes_are_told_by_line(meridian: Meridian, config: Path, text: str, words: tuple[str, ...]) -> None:
    config.write_text(text)
    sentence = assert_rejected(meridian.run("serve", "--config", config, env=NOBODY_SAYS), *words)
    if "needed" not in sentence:
        assert f"{config}:" in sentence
        # Looking at it finds the same.
        assert_rejected(meridian.run("serve", "--config", config, "--show-config", env=NOBODY_SAYS), *words)


def test_wrong_values_are_told_by_where_they_are(meridian: Meridian, data: Path) -> None:
    flag = meridian.run("serve", "--data", data, "--grace", "soon", env=NOBODY_SAYS)
    assert_rejected(flag, "--grace:", "soon", "seconds")
    variable = meridian.run("serve", "--data", data, env={**NOBODY_SAYS, "MERIDIAN_CACHE": "much"})
    assert_rejected(variable, "MERIDIAN_CACHE:", "much", "8G")


def test_files_that_cannot_be_read_are_told(meridian: Meridian, tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert_rejected(meridian.run("serve", "--config", missing, env=NOBODY_SAYS), str(missing), "cannot read")
    assert_rejected(meridian.run("serve", env={**NOBODY_SAYS, "MERIDIAN_CONFIG": str(tmp_path)}), str(tmp_path))


# What it is when it runs.


def test_a_server_by_a_file(meridian: Meridian, data: Path, config: Path) -> None:
    config.write_text("max-connections = 7\ngrace = 2\n")
    with serving(meridian, data, "--config", config) as server:
        assert execute(server, "SELECT @@max_connections, count(*) FROM sky.Star") == ((7, 500),)
        begun = time.monotonic()
        assert server.stop(signal.SIGTERM) == 0
        assert time.monotonic() - begun < SOON


def records(server: Server, message: str) -> list[dict[str, object]]:
    """The lines of a log in JSON that say something."""
    lines = [json.loads(line) for line in list(server.logged)]
    return [line for line in lines if line.get("message") == message]


def test_each_statement_has_a_line_for_who_wants_it(meridian: Meridian, data: Path) -> None:
    options = ("--log", "debug", "--log-format", "json")
    with serving(meridian, data, *options) as server:
        with server.connect(user="ann", database="sky") as connected, connected.cursor() as cursor:
            cursor.execute("SELECT id FROM Star LIMIT 3")
            number = connected.thread_id()
            with pytest.raises(pymysql.MySQLError):
                cursor.execute("SELECT id FROM Stars")
        wait_until(lambda: any(line.get("outcome") == "rejected" for line in records(server, "a statement ended")), 20, "a line")
        asked = [line for line in records(server, "a statement ended") if line["rows"] == 3]
        assert len(asked) == 1
        line = asked[0]
        assert (line["user"], line["database"], line["outcome"]) == ("ann", "sky", "ok")
        assert isinstance(line["milliseconds"], float) and 0 < line["milliseconds"] < 60_000
        spans = {span["name"]: span for span in line["spans"]}  # type: ignore[attr-defined]
        assert spans["connection"]["id"] == number and spans["statement"]["query"] >= 1
        # Lines of libraries, of which there are hundreds, are no part of it.
        targets = {str(json.loads(line)["target"]).split("::")[0] for line in list(server.logged)}
        assert all(target.startswith(("meridian", "queries")) for target in targets), targets
        rejected = [line for line in records(server, "a statement ended") if line["outcome"] == "rejected"]
        assert "Stars" in str(rejected[0]["error"])
        assert rejected[0]["spans"][-1]["query"] > spans["statement"]["query"]  # type: ignore[index]


def test_nothing_is_logged_of_a_usual_statement(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data) as server:
        wait_until(lambda: "started" in server.log, 20, "it says that it began")
        before = len(server.logged)
        for _ in range(10):
            assert execute(server, "SELECT count(*) FROM sky.Star") == ((500,),)
        with pytest.raises(pymysql.MySQLError):
            execute(server, "SELECT nothing FROM sky.Star")
        assert len(server.logged) == before, server.log
        server.stop()
        wait_until(lambda: "ending" in server.log and "ended" in server.log, 20, "it says that it ends")


def test_slow_statements_are_logged_with_their_text(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data, "--slow", 0.000001) as server:
        execute(server, f"SELECT count(*),\n '{'x' * 5000}' FROM sky.Star")
        wait_until(lambda: "SELECT count" in server.log, 20, "a line")
        line = next(line for line in server.logged if "SELECT count" in line)
        assert "slow" in line and "query=" in line and "milliseconds" in line and "xxx..." in line and len(line) < 2600


def test_those_that_are_turned_away_are_logged(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data, "--max-connections", 1) as server, server.connect():
        with pytest.raises(pymysql.OperationalError):
            server.connect()
        wait_until(lambda: "rejected: " in server.log, 20, "a line")


def test_statements_that_fail_by_no_fault_of_theirs_are_logged(meridian: Meridian, tmp_path: Path) -> None:
    data = tmp_path / "data"
    meridian.load(data, "sky", "Star", write_stars(tmp_path / "stars.csv", 500), **DIRECTOR)
    for file in data.rglob("*"):
        if file.is_file() and "chunk" in file.name:
            file.write_bytes(b"x" * file.stat().st_size)
    with serving(meridian, data) as server:
        with pytest.raises(pymysql.MySQLError) as raised:
            execute(server, "SELECT sum(ra) FROM sky.Star")
        assert raised.value.args[0] == 1030
        wait_until(lambda: "a statement failed" in server.log, 20, "a line")
        line = next(line for line in server.logged if "a statement failed" in line)
        assert "SELECT sum(ra)" in line and "query=" in line


def samples(server: Server) -> dict[str, float]:
    """What /metrics says now."""
    with urllib.request.urlopen(server.url("/metrics"), timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = answer.read().decode().splitlines()
    parted = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in parted}


def test_what_is_asked_is_counted(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data) as server:
        with server.connect(database="sky") as connected, connected.cursor() as cursor:
            cursor.execute("SELECT id FROM Star")
            assert len(cursor.fetchall()) == 500
            with pytest.raises(pymysql.MySQLError):
                cursor.execute("SELECT nothing FROM Star")
            before = samples(server)
            assert before['meridian_connections{protocol="mysql"}'] == 1
        queries = 'meridian_queries_total{kind="%s",outcome="%s",protocol="%s"}'
        assert before[queries % ("select", "ok", "mysql")] == 1
        assert before[queries % ("select", "rejected", "mysql")] == 1
        assert before['meridian_query_seconds_count{kind="select",protocol="mysql"}'] == 2
        assert before['meridian_rows_total{protocol="mysql"}'] == 500
        # 500 keys of some digits, each with a length and the 4 bytes of a packet's head.
        assert 500 * 6 < before['meridian_bytes_sent_total{protocol="mysql"}'] < 500 * 16 + 2_000
        assert before["meridian_pieces_total"] >= 1 and before["meridian_open_files"] > 0
        assert abs(before["process_resident_memory_bytes"] - server.resident_bytes(with_files=True)) < 64 << 20
        assert abs(before["process_cpu_seconds_total"] - server.processor_seconds()) < 5
        with urllib.request.urlopen(server.url("/scs/sky/Star", RA=10, DEC=0, SR=180, RESPONSEFORMAT="csv")) as answer:
            rows = len(answer.read().splitlines()) - 1
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(server.url("/scs/sky/Star", RA="x", DEC=0, SR=1, RESPONSEFORMAT="csv"))
        wait_until(lambda: samples(server).get(queries % ("cone", "ok", "http")) == 1, 20, "it is counted")
        after = samples(server)
        assert after[queries % ("cone", "rejected", "http")] == 1
        assert rows == 500 == after['meridian_rows_total{protocol="http"}']
        assert after['meridian_bytes_sent_total{protocol="http"}'] > before['meridian_bytes_sent_total{protocol="http"}'] + 500
        wait_until(lambda: samples(server)['meridian_connections{protocol="mysql"}'] == 0, 20, "it is gone")
        assert samples(server)["meridian_queries_running"] == 0


def test_systemd_is_told_when_it_is_ready_and_when_it_ends(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(60)
        env = {**NOBODY_SAYS, "NOTIFY_SOCKET": str(tmp_path / "notify"), "MERIDIAN_HTTP": "off"}
        process = meridian.start("serve", "--data", data, "--mysql", "127.0.0.1:0", env=env)
        try:
            assert listener.recv(100) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert listener.recv(100) == b"STOPPING=1"
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            process.communicate()
