"""`meridian serve` as a program: where it listens, how many it lets in, how it ends, and what strange bytes do to it."""

from __future__ import annotations

import random
import signal
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from complaints import assert_rejected
from meridian_cli import Meridian
from serving import SOON, Server, serving, wait_until
from small_tables import DIRECTOR, write_stars

STARS = 3_000
COM_QUERY = 3
# Nine million pairs, each with all stars: far more than a test waits for.
LONG = "SELECT sum(scisql_angSep(a.ra, b.dec, c.ra, a.dec)) FROM Star a, Star b, Star c WHERE a.ra + b.ra > c.dec"


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some stars over the whole sky."""
    directory = tmp_path_factory.mktemp("serve")
    meridian.load(directory / "data", "sky", "Star", write_stars(directory / "stars.csv", STARS), **DIRECTOR)
    return directory / "data"


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server of them."""
    with serving(meridian, data) as running:
        yield running


def execute(connection: pymysql.connections.Connection, statement: str) -> tuple[tuple[object, ...], ...]:
    """The rows of an answer."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


# Where it listens.


def test_it_says_what_it_serves_and_where(server: Server, data: Path) -> None:
    said = "\n".join(server.said)
    assert str(data) in said and "sky" in said and f"-P {server.port}" in said


def test_a_port_that_is_taken_is_said(meridian: Meridian, data: Path, server: Server) -> None:
    outcome = meridian.run("serve", "--data", data, "--mysql", f"127.0.0.1:{server.port}", "--http", "off")
    assert_rejected(outcome, str(server.port), "another program", "--mysql")
    outcome = meridian.run("serve", "--data", data, "--mysql", "off", "--http", f"127.0.0.1:{server.http_port}")
    assert_rejected(outcome, str(server.http_port), "another program", "--http")


def test_two_servers_side_by_side(meridian: Meridian, data: Path, server: Server) -> None:
    with serving(meridian, data) as other, server.connect() as one, other.connect() as two:
        assert other.port != server.port
        for connected in (one, two):
            assert execute(connected, "SELECT count(*) FROM sky.Star") == ((STARS,),)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mysql", "0.0.0.0:0"), ("users", "127.0.0.1")),
        (("--mysql", "off", "--http", "0.0.0.0:0"), ("users", "127.0.0.1")),
        (("--mysql", "off", "--http", "off"), ("every listener is off",)),
        (("--mysql", "nonsense"), ("nonsense", "127.0.0.1:4040")),
        (("--log", "meridian=loud"), ("loud",)),
    ],
)
def test_wrong_options_are_said(meridian: Meridian, data: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    assert_rejected(meridian.run("serve", "--data", data, *arguments), *words)


def test_a_directory_without_data(meridian: Meridian, tmp_path: Path) -> None:
    assert_rejected(meridian.run("serve", "--data", tmp_path, "--mysql", "127.0.0.1:0", "--http", "off"), str(tmp_path))


def test_options_come_from_the_environment(meridian: Meridian, data: Path, server: Server) -> None:
    environment = {"MERIDIAN_DATA": str(data), "MERIDIAN_MYSQL": f"127.0.0.1:{server.port}"}
    assert_rejected(meridian.run("serve", env=environment), str(server.port))


def by_socket(path: Path) -> pymysql.connections.Connection:
    """A connection by a file."""
    return pymysql.connect(unix_socket=str(path), user="tester", database="sky")


def test_a_socket_in_the_file_system(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "mysql.sock"
    with serving(meridian, data, "--mysql-socket", path) as server:
        assert f"mysql -S {path}" in "\n".join(server.said)
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with by_socket(path) as one, server.connect(database="sky") as two:
            statement = "SELECT count(*), min(id), max(ra) FROM Star WHERE dec > 0"
            assert execute(one, statement) == execute(two, statement)
            assert execute(one, "SELECT @@socket, USER()") == ((str(path), "tester@localhost"),)
            hosts = [str(row[2]).partition(":")[0] for row in execute(two, "SHOW PROCESSLIST")]
            assert sorted(hosts) == ["127.0.0.1", "localhost"]
        assert_rejected(
            meridian.run("serve", "--data", data, "--mysql", "off", "--http", "off", "--mysql-socket", path),
            str(path),
            "another program",
            "--mysql-socket",
        )
        # Whoever was rejected has not taken it away.
        with by_socket(path) as again:
            assert execute(again, "SELECT 1") == ((1,),)
    assert not path.exists()


def test_a_socket_alone_and_what_a_killed_server_has_left(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "mysql.sock"
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = meridian.start("serve", "--data", data, "--mysql", "off", "--http", "off", "--mysql-socket", path)
        try:
            assert process.stdout is not None
            while line := process.stdout.readline():
                if b"mysql -S" in line:
                    break
            with by_socket(path) as connected:
                assert execute(connected, "SELECT count(*) FROM Star") == ((STARS,),)
        finally:
            process.send_signal(number)
            process.wait(60)
        assert path.exists() == (number == signal.SIGKILL)


def test_no_file_of_somebody_elses_becomes_a_socket(meridian: Meridian, data: Path, tmp_path: Path) -> None:
    endpoints = ("--mysql", "off", "--http", "off", "--mysql-socket")
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    assert_rejected(meridian.run("serve", "--data", data, *endpoints, path), str(path), "no socket", "--mysql-socket")
    assert path.read_text() == "mine"
    missing = tmp_path / "nowhere" / "mysql.sock"
    assert_rejected(meridian.run("serve", "--data", data, *endpoints, missing), str(missing))
    long = tmp_path / ("a" * 110)
    assert_rejected(meridian.run("serve", "--data", data, *endpoints, long), str(long), "too long", "107", "--mysql-socket")


def test_tables_that_are_loaded_meanwhile_are_there(meridian: Meridian, tmp_path: Path) -> None:
    meridian.load(tmp_path / "data", "sky", "Star", write_stars(tmp_path / "a.csv", 100, version=1), **DIRECTOR)
    with serving(meridian, tmp_path / "data") as server, server.connect(database="sky") as connected:
        statement = "SELECT count(*), max(version) FROM Star"
        assert execute(connected, statement) == ((100, 1),)
        meridian.load(tmp_path / "data", "sky", "Star", write_stars(tmp_path / "b.csv", 150, version=2), replace=True, **DIRECTOR)
        assert execute(connected, statement) == ((150, 2),)
        meridian.load(tmp_path / "data", "new", "Star", tmp_path / "a.csv", **DIRECTOR)
        connected.select_db("new")
        assert execute(connected, statement) == ((100, 1),)


def test_as_many_connections_as_may_be(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data, "--max-connections", 3) as server:
        connections = [server.connect() for _ in range(3)]
        with pytest.raises(pymysql.OperationalError) as raised:
            server.connect()
        assert raised.value.args[0] == 1040
        connections.pop().close()
        wait_until(lambda: can_connect(server), 20, "there is room again")
        for connected in connections:
            connected.close()


def can_connect(server: Server) -> bool:
    """Whether there is room for another connection."""
    try:
        server.connect().close()
    except pymysql.OperationalError:
        return False
    return True


def test_who_says_nothing_is_left(server: Server) -> None:
    with server.connect() as connected:
        execute(connected, "SET wait_timeout = 1")
        time.sleep(2.5)
        with pytest.raises(pymysql.MySQLError):
            execute(connected, "SELECT 1")


# How it ends.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told(meridian: Meridian, data: Path, number: int) -> None:
    with serving(meridian, data) as server:
        idle = server.connect()
        begun = time.monotonic()
        assert server.stop(number) == 0
        assert time.monotonic() - begun < SOON
        with pytest.raises(pymysql.MySQLError):
            execute(idle, "SELECT 1")
        with pytest.raises(pymysql.OperationalError):
            server.connect()


def running(server: Server, statement: str) -> pymysql.connections.Connection:
    """A connection whose statement has begun and is not waited for."""
    connected = server.connect(database="sky")
    connected._execute_command(COM_QUERY, statement)  # type: ignore[attr-defined]
    with server.connect() as other:
        wait_until(lambda: any(row[7] == statement for row in execute(other, "SHOW FULL PROCESSLIST")), 10, "it runs")
    return connected


def test_statements_that_run_are_answered(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data, "--grace", 120) as server:
        statement = "SELECT sum(scisql_angSep(a.ra, b.dec, b.ra, a.dec)) FROM Star a, Star b WHERE a.ra + b.ra > 0 AND a.id < 500"
        connected = running(server, statement)
        server.process.terminate()
        connected._read_query_result()  # type: ignore[attr-defined]
        assert connected._result.rows[0][0] > 0  # type: ignore[attr-defined]
        assert server.wait() == 0


def test_those_that_take_too_long_are_stopped(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data, "--grace", 1) as server:
        connected = running(server, LONG)
        begun = time.monotonic()
        server.process.terminate()
        with pytest.raises(pymysql.MySQLError) as raised:
            connected._read_query_result()  # type: ignore[attr-defined]
        assert raised.value.args[0] == 1053
        assert server.wait() == 0
        assert 0.9 < time.monotonic() - begun < SOON


def test_a_second_signal_ends_it_at_once(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data) as server:
        connected = running(server, LONG)
        server.process.terminate()
        wait_until(lambda: "ending" in server.log, 20, "it heard the first")
        begun = time.monotonic()
        assert server.stop() == 130
        assert time.monotonic() - begun < SOON
        connected.close()


def test_a_join_of_everything_with_everything_is_stopped(server: Server) -> None:
    """It makes rows for hours without reading one, and went on long after KILL: nothing let the task end."""
    statement = (
        "SELECT sum(scisql_angSep(a.ra, b.dec, c.ra, a.dec)) FROM Star a, Star b, Star c"
        " WHERE scisql_angSep(a.ra, a.dec, b.ra, b.dec) < 179"
    )
    connected = running(server, statement)
    time.sleep(1)
    with server.connect() as other:
        (number,) = (row[0] for row in execute(other, "SHOW FULL PROCESSLIST") if row[7] == statement)
        execute(other, f"KILL QUERY {number}")
        begun = time.monotonic()
        with pytest.raises(pymysql.MySQLError) as raised:
            connected._read_query_result()  # type: ignore[attr-defined]
        assert raised.value.args[0] == 1317
        assert execute(other, "SELECT 5 FROM sky.Star LIMIT 1") == ((5,),)
        assert time.monotonic() - begun < SOON
    wait_until(server.is_idle, 10, "it computes no more")
    connected.close()


# Strange bytes.


class Raw:
    """A connection whose every byte is chosen."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        self.greeting = self.packet()

    def packet(self) -> bytes:
        """The next packet's payload; nothing at the end."""
        header = self._bytes(4)
        return self._bytes(int.from_bytes(header[:3], "little")) if len(header) == 4 else b""

    def _bytes(self, count: int) -> bytes:
        received = b""
        while len(received) < count and (part := self._receive(count - len(received))):
            received += part
        return received

    def _receive(self, count: int) -> bytes:
        try:
            return self.socket.recv(count)
        except ConnectionError:
            return b""

    def send(self, payload: bytes, number: int = 0) -> None:
        """Sends a packet; that nobody listens any more is no matter."""
        try:
            self.socket.sendall(struct.pack("<I", len(payload))[:3] + bytes([number]) + payload)
        except ConnectionError:
            pass

    def introduce(self, flags: int = 0x0008_A200) -> bytes:
        """Says who it is; gives the answer."""
        self.send(struct.pack("<IIB23s", flags, 1 << 24, 45, b"") + b"raw\0\0" + b"mysql_native_password\0", 1)
        return self.packet()

    def close(self) -> None:
        """Hangs up."""
        self.socket.close()


COMMANDS = [
    b"\x03SELECT 1",
    b"\x03SELECT id, ra FROM sky.Star LIMIT 3",
    b"\x02sky",
    b"\x04Star\0",
    b"\x16SELECT ?, ?",
    b"\x17\x01\0\0\0\0\x01\0\0\0\0\x01\x08\0\xfd\0\x05\0\0\0\0\0\0\0\x03abc",
    b"\x18\x01\0\0\0\0\0piece",
    b"\x19\x01\0\0\0",
    b"\x1a\x01\0\0\0",
    b"\x1b\0\0",
    b"\x1c\x01\0\0\0\x01\0\0\0",
    b"\x1f",
    b"\x0e",
    b"\x09",
    b"\x0a",
    b"\x0c\xff\xff\xff\x7f",
    b"\x11bob\0\0sky\0\x2d\0mysql_native_password\0",
    b"\x03SET NAMES utf8mb4",
    b"\x03SHOW VARIABLES LIKE 'v%'",
    b"\x00",
    b"\xff\xff",
    b"",
]


def mutated(chance: random.Random, payload: bytes) -> bytes:
    """A packet with some bytes changed, lost, doubled or added."""
    changed = bytearray(payload)
    for _ in range(chance.randint(0, 4)):
        at = chance.randint(0, len(changed))
        match chance.randint(0, 4):
            case 0 if at < len(changed):
                changed[at] = chance.randint(0, 255)
            case 1:
                del changed[at:]
            case 2:
                changed[at:at] = chance.randbytes(chance.randint(1, 9))
            case 3 if at < len(changed):
                changed[at] ^= 1 << chance.randint(0, 7)
            case _:
                changed += changed[at:]
    return bytes(changed)


def test_strange_commands_do_no_harm(server: Server) -> None:
    chance = random.Random(7)
    with server.connect() as witness:
        raw = None
        for turn in range(3_000):
            if raw is None:
                raw = Raw(server)
                assert raw.introduce()[:1] == b"\0"
            raw.send(mutated(chance, chance.choice(COMMANDS)), 0 if chance.random() < 0.98 else chance.randint(0, 255))
            if turn % 7 == 0:
                raw.close()
                raw = None
            if turn % 5 == 0:
                witness.ping(reconnect=False)
        assert execute(witness, "SELECT count(*) FROM sky.Star") == ((STARS,),)
    assert server.process.poll() is None


def test_strange_introductions_do_no_harm(server: Server) -> None:
    chance = random.Random(8)
    usual = struct.pack("<IIB23s", 0x01FF_A20F, 1 << 24, 255, b"") + b"raw\0\x03abcsky\0mysql_native_password\0\x07\x03key\x02ab"
    with server.connect() as witness:
        for turn in range(1_500):
            raw = Raw(server)
            assert raw.greeting[:1] == b"\x0a"
            payload = mutated(chance, usual) if turn % 3 else chance.randbytes(chance.randint(0, 100))
            raw.send(payload, 1 if turn % 10 else chance.randint(0, 255))
            if turn % 4 == 0:
                raw.send(mutated(chance, COMMANDS[turn % len(COMMANDS)]))
            raw.close()
            witness.ping(reconnect=False)
    wait_until(lambda: left_alone(server), 15, "all have left")


def left_alone(server: Server) -> bool:
    """Whether nobody else is connected."""
    with server.connect() as connected:
        return len(execute(connected, "SHOW PROCESSLIST")) == 1


def test_packets_that_claim_much_take_no_memory(server: Server) -> None:
    before = server.resident_bytes()
    raws = [Raw(server) for _ in range(50)]
    for raw in raws:
        assert raw.introduce()[:1] == b"\0"
        raw.socket.sendall(b"\xff\xff\xff\0" + b"\x03" * 1000)
    assert server.resident_bytes() - before < 50 << 20
    # Before they are let in, a mebibyte is the most.
    raw = Raw(server)
    raw.socket.sendall(b"\xff\xff\xff\x01")
    assert raw.packet()[:3] == b"\xff" + struct.pack("<H", 1043)
    for raw in raws:
        raw.close()


def test_too_long_a_packet_is_rejected(server: Server) -> None:
    raw = Raw(server)
    raw.introduce()
    for number in range(5):
        try:
            raw.socket.sendall(b"\xff\xff\xff" + bytes([number]) + b"\x03" + b" " * (0xFFFFFF - 1))
        except ConnectionError:
            break
    answer = raw.packet()
    assert answer == b"" or answer[:3] == b"\xff" + struct.pack("<H", 1153)
    raw.close()


def test_a_client_of_something_else_is_told(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        stream.settimeout(5)
        received = b""
        while part := stream.recv(1000):
            received += part
        assert received[4:5] == b"\x0a" and b"is it a client of MySQL?" in received


def test_pipelined_commands_are_answered_in_order(server: Server) -> None:
    raw = Raw(server)
    raw.introduce()
    for number in range(20):
        raw.send(b"\x03SELECT %d" % number)
    for number in range(20):
        columns, _, _, row, _ = (raw.packet() for _ in range(5))
        assert (columns, row[1:]) == (b"\x01", b"%d" % number)
    raw.close()
