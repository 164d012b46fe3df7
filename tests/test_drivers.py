"""`meridian serve` and drivers that are no Python of ours: Java's by JDBC, mysqlclient on MariaDB's C library; and all of them in TLS."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import mysql.connector
import pymysql
import pytest
from pymysql.constants import CLIENT

from complaints import assert_rejected
from meridian_cli import Meridian
from serving import Server, serving, wait_until
from testbed import sky

HERE = Path(__file__).resolve().parent
CERTIFICATES = HERE / "certificates"
CA = CERTIFICATES / "ca.pem"
TLS = ("--tls-cert", CERTIFICATES / "server.pem", "--tls-key", CERTIFICATES / "server.key")
# Where Debian puts MariaDB's driver, and scripts/setup MySQL's. Others are tested where this names their files, with colons between them.
DEBIANS_DRIVER = Path("/usr/share/java/mariadb-java-client.jar")
MYSQLS_DRIVER = HERE.parent / ".venv" / "clients" / "java" / "mysql-connector-j-9.7.0.jar"
DRIVERS = [DEBIANS_DRIVER, MYSQLS_DRIVER, *(Path(name) for name in os.environ.get("MERIDIAN_JDBC_DRIVERS", "").split(":") if name)]
# The interpreter of the system, for which Debian builds mysqlclient.
PYTHON = "/usr/bin/python3"
# Less than the answers that a program with it reads.
JAVA_MEMORY = "-Xmx96m"


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The testbed's sky."""
    return sky.load(meridian, tmp_path_factory.mktemp("drivers"), sky.make_tables())


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server of it, with TLS for those who want it."""
    with serving(meridian, data, *TLS, "--log", "warn,meridian_server=debug") as running:
        yield running


def extremes() -> list[tuple[object, ...]]:
    """The rows of the table of extremes as they were before they were loaded; NaN is NULL, and no zero has a sign."""
    table = sky.make_extremes().rows
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return [tuple(value + 0.0 if isinstance(value, float) else value for value in row) for row in rows]


# Java.


@cache
def has_java() -> bool:
    """Whether there is a Java that runs programs from their source."""
    if shutil.which("java") is None:
        return False
    modules = subprocess.run(["java", "--list-modules"], capture_output=True, text=True, check=False).stdout
    return "jdk.compiler@" in modules


class Java:
    """Java programs with a driver."""

    def __init__(self, driver: Path, server: Server) -> None:
        self.driver = driver
        self.is_mysqls = "mysql-connector" in driver.name
        self.server = server

    def url(self, **settings: object) -> str:
        """The address of the sky, with settings of the driver's."""
        kind = "mysql" if self.is_mysqls else "mariadb"
        # MariaDB's driver gives up after 30 s, for which a busy machine can keep it waiting.
        patient = {"connectTimeout": 120_000}
        settings = {"user": "tester", "password": "secret", **patient, "sslMode" if self.is_mysqls else "useSsl": self._no_tls(), **settings}
        options = "&".join(f"{name}={value}" for name, value in settings.items())
        return f"jdbc:{kind}://127.0.0.1:{self.server.port}/sky?{options}"

    def _no_tls(self) -> str:
        return "DISABLED" if self.is_mysqls else "false"

    def run(self, what: str, *arguments: object, **settings: object) -> list[list[str]]:
        """The lines of what a program saw, as lists of words."""
        command = ["java", JAVA_MEMORY, "-XX:TieredStopAtLevel=1", "-cp", str(self.driver), str(HERE / "clients" / "Jdbc.java"), what]
        command += [self.url(**settings), *(str(argument) for argument in arguments)]
        outcome = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300, check=False)
        assert outcome.returncode == 0, outcome.stderr[-3000:]
        return [line.split("\t") for line in outcome.stdout.splitlines()]


@pytest.fixture(params=DRIVERS, ids=lambda path: path.name)
def java(request: pytest.FixtureRequest, server: Server) -> Java:
    """Java with one of the drivers."""
    if not has_java() or not request.param.exists():
        pytest.skip(f"Java or {request.param} is not installed: run scripts/setup tests and scripts/setup clients.")
    return Java(request.param, server)


def float_bits(value: object, kind: str) -> str:
    """A number as Java writes its bits; NULL as its null."""
    if not isinstance(value, float):
        return "null"
    integer = {"f": "i", "d": "q"}[kind]
    return str(struct.unpack(f">{integer}", struct.pack(f">{kind}", value))[0])


def as_java_says(row: tuple[object, ...]) -> list[str]:
    """A row of the table of extremes as the program writes it."""
    number, tiny, big, ubig, uint, f, d, price, flag, day, at, txt, raw = row
    plain = [str(value) if value is not None else "null" for value in (number, tiny, big, ubig, uint)]
    moment = "null" if at is None else at.isoformat(timespec="seconds" if at.second else "minutes")  # type: ignore[attr-defined]
    return [
        *plain,
        float_bits(f, "f"),
        float_bits(d, "d"),
        str(price) if price is not None else "null",
        str(flag).lower() if flag is not None else "null",
        str(day) if day is not None else "null",
        moment,
        "null" if txt is None else str(txt).replace("\n", "\\n"),
        raw.hex() if isinstance(raw, bytes) else "null",
    ]


@pytest.mark.parametrize("prepared", [False, True], ids=["text", "prepared"])
def test_java_reads_every_value(java: Java, prepared: bool) -> None:
    seen = java.run("values", useServerPrepStmts=str(prepared).lower())
    expected = [as_java_says(row) for row in extremes()]
    for how in ("text", "prepared"):
        # A tab within a value is one between values.
        rows = ["\t".join(words[1:]) for words in seen if words[0] == how]
        assert rows == ["\t".join(row) for row in expected]


@pytest.mark.parametrize("prepared", [False, True], ids=["text", "prepared"])
def test_java_binds_parameters(java: Java, prepared: bool) -> None:
    seen = java.run("parameters", useServerPrepStmts=str(prepared).lower())
    text = "it's \\ \"quoted\" % ? ; -- ☄ 🌌"
    for turn in range(3):
        first, smallest, d, price, quoted, null, no_number, truth, day, at, raw, length = seen[turn]
        assert (int(first), int(smallest), float(d), float(price)) == (-7 - turn, -(2**63), -0.1, 1.25)
        assert (quoted, null, no_number, truth) == (text, "null", "null", "true")
        assert (day, at) == ("2010-06-15", "2010-06-15 01:02:03.25")
        assert (raw.lower(), length) == ("00ff275c0a1a61", "7")
    found = {words[0]: words[1] for words in seen[3:]}
    assert found == {"ubig = ?": "1", "at = ?": "9", "day < ?": "2,4", "raw = ?": "1", "txt LIKE ?": "1", "price = ?": "5"}


# Numbers of java.sql.Types.
JAVA_TYPES = {
    "id": 4, "tiny": -6, "big": -5, "ubig": -5, "uint_": 4, "f": 7, "d": 8, "price": 3, "flag": -7, "day": 91, "at": 93, "txt": 12, "raw": -3,
}  # fmt: skip


def test_java_is_told_what_there_is(java: Java) -> None:
    seen = java.run("metadata")
    said: dict[str, list[list[str]]] = {}
    for what, *words in seen:
        said.setdefault(what, []).append(words)
    assert ["sky"] in said["catalog"]
    tables = {words[1] for words in said["table"] if words[0] == "sky"}
    assert {"Object", "Source", "RefObject", "RefMatch", "Filter", "Extremes"} <= tables
    columns = {words[1]: words for words in said["column"]}
    assert list(columns) == list(JAVA_TYPES)
    assert [int(words[0]) for words in columns.values()] == list(range(1, len(JAVA_TYPES) + 1))
    assert columns["tiny"][4] == "YES"
    assert "UNSIGNED" in columns["ubig"][3].upper()
    for name, words in columns.items():
        # Text and bytes are of any length.
        assert int(words[2]) == {"txt": -1, "raw": -4}.get(name, JAVA_TYPES[name]), words
    assert said["key"] == [["objectId"]] and ["objectId"] in said["index"]
    assert not {"imported", "exported", "procedure", "function"} & set(said)
    selected = {words[0]: words for words in said["selected"]}
    assert selected["ubig"][2] == "java.math.BigInteger" and selected["ubig"][3] == "false"
    assert selected["big"][2] == "java.lang.Long" and selected["big"][3] == "true"
    assert selected["price"][2] == "java.math.BigDecimal" and selected["price"][5] == "3"
    assert selected["d"][2] == "java.lang.Double"


def test_java_changes_its_session(java: Java) -> None:
    seen = java.run("session")
    assert seen == [
        ["valid", "true", "true", "false", "sky"],
        ["autocommit", "false", "0"],
        ["autocommit", "true", "1"],
        ["isolation", "true"],
        ["catalog", "information_schema", "information_schema"],
        ["catalog", "sky", "sky"],
        ["use", "information_schema"],
        ["most", "3"],
        ["user", "tester@127.0.0.1"],
    ]


@pytest.mark.parametrize("prepared", [False, True], ids=["text", "prepared"])
def test_java_gets_errors(java: Java, prepared: bool) -> None:
    seen = java.run("errors", useServerPrepStmts=str(prepared).lower())
    assert seen == [["1064", "42000"], ["1054", "42S22"], ["1146", "42S02"], ["1290", "HY000"], ["1054", "42S22"], ["still", "1"]]


def test_java_reads_several_answers(java: Java) -> None:
    assert java.run("several", allowMultiQueries="true") == [["1"], ["done"], ["1"]]


def fetch_size(java: Java) -> int:
    """What a program says that wants rows as they come: MySQL's driver has a number of its own for it."""
    return -(2**31) if java.is_mysqls else 1


def test_java_streams_more_than_its_memory(java: Java) -> None:
    assert java.run("stream", fetch_size(java)) == [["streamed", "200000000", "true"], ["then", "5"]]


def test_java_leaves_an_answer(java: Java, server: Server) -> None:
    if java.is_mysqls:
        pytest.skip("MySQL's driver reads an answer that is left to its end.")
    seen = java.run("leave", fetch_size(java))
    assert seen[0] == ["read", "1000"] and seen[-1] == ["then", "5"]
    wait_until(server.is_idle, 10, "it computes no more")


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_java_stops_a_statement(java: Java, server: Server, how: str) -> None:
    stopped, then = java.run(how)
    assert stopped[:2] == ["stopped", "true"] and then == ["then", "5"]
    wait_until(server.is_idle, 10, "it computes no more")


def test_java_in_tls(java: Java) -> None:
    if java.is_mysqls:
        seen = java.run("tls", sslMode="REQUIRED")
    else:
        seen = java.run("tls", useSsl="true", serverSslCert=CA)
    assert seen[0][0] in ("TLSv1.2", "TLSv1.3") and seen[1] == ["3000000"]


# mysqlclient, which is MariaDB's C library in Python.

MYSQLCLIENT = """
import datetime, decimal, json, sys
import MySQLdb, MySQLdb.cursors
settings = json.loads(sys.argv[1])
connection = MySQLdb.connect(host="127.0.0.1", user="tester", passwd="secret", db="sky", charset="utf8mb4", binary_prefix=True, **settings)
def execute(statement, *values, cursor=None):
    cursor = cursor or connection.cursor()
    cursor.execute(statement, values or None)
    return cursor.fetchall()
def shown(value):
    return value.hex() if isinstance(value, (bytes, float)) else str(value)
out = {}
out["extremes"] = [[shown(value) for value in row] for row in execute("SELECT * FROM Extremes ORDER BY id")]
out["parameters"] = [shown(value) for value in execute(
    "SELECT %s, %s, %s, %s, %s, %s, %s, HEX(%s)",
    -7, 2**64 - 1, -0.1, decimal.Decimal("1.250"), "it's \\\\ % ;", None, datetime.datetime(2010, 6, 15, 1, 2, 3), b"\\0\\xff'\\\\",
)[0]]
out["compared"] = execute("SELECT id FROM Extremes WHERE raw = %s OR ubig = %s ORDER BY id", b"\\0\\xff", 2**63)
try:
    execute("SELECT nosuch FROM Object")
except MySQLdb.Error as error:
    out["error"] = error.args[0]
cursor = connection.cursor(MySQLdb.cursors.SSCursor)
cursor.execute("SELECT a.objectId, REPEAT('x', 1000) FROM Object a, Object b LIMIT 100000")
out["streamed"] = sum(len(row[1]) for row in cursor)
cursor.close()
connection.autocommit(False)
out["autocommit"] = [connection.get_autocommit(), execute("SELECT @@autocommit")[0][0]]
connection.commit()
connection.ping()
connection.select_db("information_schema")
out["chosen"] = execute("SELECT DATABASE()")[0][0]
cursor = connection.cursor()
cursor.execute("SELECT 1; SELECT 2, 3")
out["several"] = [cursor.fetchall()]
while cursor.nextset() == 1:
    out["several"].append(cursor.fetchall())
out["tls"] = execute("SHOW STATUS LIKE 'Ssl_version'")[0][1]
out["stat"] = connection.stat()
connection.change_user("other", "secret", "sky")
out["user"] = execute("SELECT USER()")[0][0]
print(json.dumps(out))
"""


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "TLS"])
def test_mysqlclient(server: Server, tls: bool) -> None:
    if subprocess.run([PYTHON, "-c", "import MySQLdb"], capture_output=True, check=False).returncode:
        pytest.skip("mysqlclient is not installed: run scripts/setup tests.")
    # Debian's would announce several statements only to a client library of another numbering.
    settings: dict[str, object] = {"port": server.port, "client_flag": CLIENT.MULTI_STATEMENTS | CLIENT.MULTI_RESULTS}
    if tls:
        settings["ssl"] = {"ca": str(CA)}
    outcome = subprocess.run(
        [PYTHON, "-c", MYSQLCLIENT, json.dumps(settings)], capture_output=True, text=True, timeout=120, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    said = json.loads(outcome.stdout)
    for ours, row in zip(said["extremes"], extremes(), strict=True):
        number, tiny, big, ubig, uint, f, d, price, flag, day, at, txt, raw = row
        assert ours[:5] == [str(value) for value in (number, tiny, big, ubig, uint)]
        if f is not None:
            assert struct.pack("f", float.fromhex(ours[5])) == struct.pack("f", f) and float.fromhex(ours[6]) == d
        assert ours[7] == str(price) and ours[8] == str(flag if flag is None else int(flag))  # type: ignore[call-overload]
        assert ours[9:12] == [str(value) for value in (day, at, txt)]
        assert ours[12] == ("None" if raw is None else raw.hex())  # type: ignore[attr-defined]
    # A Decimal is written as a number with a point, which is a double here.
    assert said["parameters"] == [
        "-7", "18446744073709551615", (-0.1).hex(), (1.25).hex(), "it's \\ % ;", "None", "2010-06-15 01:02:03", "00FF275C",
    ]  # fmt: skip
    assert said["compared"] == [[1], [4]] and said["error"] == 1054 and said["streamed"] == 100_000_000
    assert said["autocommit"] == [False, 0] and said["chosen"] == "information_schema" and said["several"] == [[[1]], [[2, 3]]]
    assert bool(said["tls"]) == tls and "Threads" in said["stat"] and said["user"] == "other@127.0.0.1"


# TLS.


def trusting() -> ssl.SSLContext:
    """What a client knows that trusts the tests' certificates."""
    return ssl.create_default_context(cafile=str(CA))


def execute(connection: pymysql.connections.Connection, statement: str) -> tuple[tuple[object, ...], ...]:
    """The rows of an answer."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_pymysql_in_tls(server: Server, version: ssl.TLSVersion) -> None:
    context = trusting()
    context.minimum_version = context.maximum_version = version
    with server.connect(database="sky", ssl=context) as connected:
        status = dict(execute(connected, "SHOW STATUS LIKE 'Ssl%'"))
        assert status["Ssl_version"] == version.name.replace("_", ".") and str(status["Ssl_cipher"]).startswith("TLS_")
        assert execute(connected, "SELECT @@have_ssl") == (("YES",),)
        # More than a record of TLS holds, both ways.
        text = "x" * (17 << 20)
        assert execute(connected, f"SELECT '{text}' AS t") == ((text,),)
        rows = execute(connected, "SELECT a.objectId, REPEAT('y', 500) FROM Object a, Object b LIMIT 100000")
        assert len(rows) == 100_000 and all(len(str(row[1])) == 500 for row in rows)


def test_clear_text_goes_on_beside_tls(server: Server) -> None:
    with server.connect(database="sky", ssl_disabled=True) as connected:
        assert dict(execute(connected, "SHOW STATUS LIKE 'Ssl%'")) == {"Ssl_cipher": "", "Ssl_version": ""}


def test_the_certificate_is_that_of_the_host(server: Server) -> None:
    with pytest.raises(pymysql.OperationalError, match="(?i)certificate"):
        server.connect(ssl=ssl.create_default_context())
    with server.connect(host="localhost", ssl=trusting()) as connected:
        assert execute(connected, "SELECT 1") == ((1,),)


@pytest.mark.parametrize("pure", [True, False], ids=["Python", "MySQL's C library"])
@pytest.mark.parametrize("tls", [False, True], ids=["clear", "TLS"])
@pytest.mark.parametrize("password", ["secret", ""], ids=["password", "no password"])
def test_mysqls_connector(server: Server, pure: bool, tls: bool, password: str) -> None:
    if not pure and not mysql.connector.HAVE_CEXT:
        pytest.skip("MySQL's connector has come without its C library.")
    how = {"ssl_ca": str(CA), "ssl_verify_cert": True, "ssl_verify_identity": pure} if tls else {"ssl_disabled": True}
    settings = {"host": "127.0.0.1", "port": server.port, "user": "tester", "password": password, "database": "sky"}
    with mysql.connector.connect(**settings, **how, use_pure=pure) as connected, connected.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_version'")
        assert (cursor.fetchall()[0][1] != "") == tls
        connected.cmd_change_user("other", password, "sky")
        cursor.execute("SELECT USER(), count(*) FROM Filter GROUP BY 1")
        assert cursor.fetchall()[0][0] == "other@127.0.0.1"


def command_line(server: Server, *options: str) -> list[str]:
    """MariaDB's command line client."""
    program = shutil.which("mariadb") or shutil.which("mysql")
    if program is None:
        pytest.skip("There is no command line client: run scripts/setup tests.")
    return [program, "--no-defaults", "-h", "127.0.0.1", "-P", str(server.port), "-u", "tester", *options, "sky"]


def test_the_command_line_client_in_tls(server: Server) -> None:
    options = [f"--ssl-ca={CA}", "--ssl-verify-server-cert", "-e", "status"]
    said = subprocess.run(command_line(server, *options), capture_output=True, text=True, check=True).stdout
    assert "Cipher in use is" in said, said


def test_hanging_up_in_tls_ends_the_statement(server: Server) -> None:
    long = (
        "SELECT sum(scisql_angSep(a.ra_PS, b.decl_PS, c.ra_PS, a.decl_PS)) FROM Object a, Object b, Object c "
        "WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) < 179"
    )
    for politely in (True, False):
        connected = server.connect(database="sky", ssl=trusting())
        connected._execute_command(3, long)  # type: ignore[attr-defined]
        wait_until(lambda: not server.is_idle(0.2), 20, "the statement runs")
        stream = connected._sock  # type: ignore[attr-defined]
        if politely:
            # TLS is ended, and then the connection.
            with pytest.raises((OSError, ssl.SSLError)):
                stream.settimeout(0.5)
                stream.unwrap()
        connected._force_close()  # type: ignore[attr-defined]
        wait_until(server.is_idle, 10, "it computes no more")


def test_a_client_that_begins_tls_and_says_nothing_is_left(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as stream:
        stream.recv(1000)
        stream.sendall(b"\x20\0\0\x01" + struct.pack("<IIB23s", 0x0008_AA00, 1 << 24, 45, b"") + b"\x16\x03\x01")
        begun = time.monotonic()
        assert stream.recv(100) == b""
        assert 5 < time.monotonic() - begun < 20


def test_tls_that_is_not_offered(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data) as server:
        with pytest.raises(pymysql.OperationalError):
            server.connect(ssl=trusting())
        with server.connect() as connected:
            assert execute(connected, "SELECT @@have_ssl") == (("DISABLED",),)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tls-cert", "nowhere.pem", "--tls-key", CERTIFICATES / "server.key"), ("nowhere.pem", "No such file")),
        (("--tls-cert", CERTIFICATES / "server.key", "--tls-key", CERTIFICATES / "server.key"), ("no certificate",)),
        (("--tls-cert", CERTIFICATES / "server.pem", "--tls-key", CERTIFICATES / "other.key"), ("not that of the first certificate",)),
    ],
)
def test_wrong_files_for_tls_are_rejected(meridian: Meridian, data: Path, arguments: tuple[object, ...], words: tuple[str, ...]) -> None:
    assert_rejected(meridian.run("serve", "--data", data, "--mysql", "127.0.0.1:0", *arguments), *words)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (("--tls-cert", CERTIFICATES / "server.pem"), "--tls-key"),
        (("--tls-key", CERTIFICATES / "server.key"), "--tls-cert"),
    ],
)
def test_each_file_for_tls_needs_the_other(meridian: Meridian, data: Path, given: tuple[object, ...], missing: str) -> None:
    outcome = meridian.run("serve", "--data", data, "--mysql", "127.0.0.1:0", "--http", "off", *given)
    assert_rejected(outcome, missing)


def test_the_files_for_tls_come_from_the_environment(meridian: Meridian, data: Path) -> None:
    environment = {"MERIDIAN_TLS_CERT": str(CERTIFICATES / "server.pem"), "MERIDIAN_TLS_KEY": "nowhere.key"}
    outcome = meridian.run("serve", "--data", data, "--mysql", "127.0.0.1:0", "--http", "off", env=environment)
    assert_rejected(outcome, "nowhere.key")
