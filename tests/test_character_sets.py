"""Clients that do not speak UTF-8, and clients that compress: what they send and receive is converted, and nothing else changes."""

from __future__ import annotations

import csv
import io
import shutil
import socket
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mysql.connector
import pyarrow as pa
import pymysql
import pytest
from pymysql.connections import Connection

from meridian_cli import Meridian
from serving import Server, serving
from testbed import sky
from testbed.mariadb import SERVER as MARIADB_SERVER
from testbed.mariadb import MariaDB

SETS = ["ascii", "cp1250", "cp1251", "cp1256", "cp1257", "koi8r", "latin1", "latin2"]
HIGH = range(0x80, 0x100)
CLIENT = shutil.which("mariadb")
# Bytes that a compressed packet can have in it.
LONGEST = (1 << 24) - 1


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The testbed's sky."""
    return sky.load(meridian, tmp_path_factory.mktemp("sets"), sky.make_tables())


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server of it."""
    with serving(meridian, data) as running:
        yield running


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """A private MariaDB."""
    if not Path(MARIADB_SERVER).exists() or shutil.which("mariadb-install-db") is None:
        pytest.skip("MariaDB is not installed: run scripts/setup tests.")
    running = MariaDB(tmp_path_factory.mktemp("mariadb"))
    try:
        yield running
    finally:
        running.stop()


def asked(connection: pymysql.connections.Connection, statement: bytes) -> list[tuple[object, ...]]:
    """The rows, with texts as the bytes that came."""
    connection.query(statement)  # type: ignore[arg-type]
    result = connection._result
    assert result is not None
    return list(result.rows)


@pytest.mark.parametrize("name", SETS)
def test_every_byte_is_the_character_that_mariadb_takes_it_for(server: Server, mariadb: MariaDB, name: str) -> None:
    with server.connect(charset=name, use_unicode=False, database="sky") as ours:
        for byte in HIGH:
            sign = bytes([byte])
            ((theirs,),) = mariadb.execute(f"SELECT HEX(CONVERT(_{name} x'{byte:02x}' USING utf8mb4))").rows
            ((read,),) = asked(ours, b"SELECT HEX('" + sign + b"') AS code")
            if theirs != "3F":
                assert read == str(theirs).encode(), (name, byte)
                # What was understood comes back as it was.
                assert asked(ours, b"SELECT '" + sign + b"' AS sign") == [(sign,)]


def test_texts_and_headings_and_errors_are_converted(server: Server) -> None:
    with server.connect(charset="latin1", use_unicode=False, database="sky") as ours:
        assert asked(ours, "SELECT 'é€', CHAR_LENGTH('é€'), 1".encode("cp1252")) == [("é€".encode("cp1252"), 2, 1)]
        # What the set does not have is a query mark, as in MySQL.
        assert asked(ours, b"SELECT CONCAT('a', CONVERT(x'e29884' USING utf8mb4))") == [(b"a?",)]
        # Bytes are no text.
        assert asked(ours, b"SELECT x'e9' AS a, _binary'\xe9\x27\x27' AS b") == [(b"\xe9", b"\xe9\x27")]
        with ours.cursor() as cursor:
            cursor.execute("SELECT 1 AS `größe`")
            assert cursor.description[0][0] in ("größe", "größe".encode("cp1252"))
    if CLIENT is not None:
        command = [CLIENT, "--no-defaults", "-h", "127.0.0.1", "-P", str(server.port), "-u", "tester", "--skip-ssl", "sky"]
        statement = "SELECT größe FROM Object".encode("cp1252")
        done = subprocess.run([*command, "--default-character-set=latin1"], input=statement, capture_output=True, check=False, timeout=60)
        assert b"1054" in done.stderr and statement in done.stderr, done.stderr


def test_a_connection_may_change_its_set(server: Server) -> None:
    with server.connect(use_unicode=False, database="sky") as ours:
        assert asked(ours, "SELECT 'é'".encode()) == [("é".encode(),)]
        for statement in [b"SET NAMES latin1", b"SET character_set_client = latin1, character_set_results = 'latin1'"]:
            asked_nothing(ours, statement)
            assert asked(ours, b"SELECT '\xe9' AS e, @@character_set_results") == [(b"\xe9", b"latin1")]
            asked_nothing(ours, b"SET NAMES utf8mb4")
        asked_nothing(ours, b"SET character_set_results = NULL, character_set_client = latin2")
        assert asked(ours, b"SELECT '\xb3' AS l") == [("ł".encode(),)]
        for statement, number in [
            (b"SET NAMES sjis", 1115),
            (b"SET NAMES latin1 COLLATE utf8mb4_bin", 1253),
            (b"SET collation_connection = 'klingon_ci'", 1273),
        ]:
            with pytest.raises(pymysql.MySQLError) as raised:
                asked_nothing(ours, statement)
            assert raised.value.args[0] == number
        sets = {row[0] for row in asked(ours, b"SHOW CHARACTER SET")}
        assert {name.encode() for name in SETS} | {b"utf8mb4"} == sets
        assert asked(ours, b"SHOW COLLATION WHERE Collation = 'latin1_swedish_ci'")[0][:3] == (b"latin1_swedish_ci", b"latin1", 8)


def asked_nothing(connection: pymysql.connections.Connection, statement: bytes) -> None:
    """Has a statement executed."""
    connection.query(statement)  # type: ignore[arg-type]


def test_parameters_are_converted(server: Server) -> None:
    with (
        mysql.connector.connect(
            host="127.0.0.1", port=server.port, user="tester", charset="latin1", collation="latin1_swedish_ci", use_pure=True, database="sky"
        ) as ours,
        ours.cursor(prepared=True) as cursor,
    ):
        cursor.execute("SELECT CHAR_LENGTH(?), HEX(?), ?", ("éß", "é", "grün"))
        assert [tuple(row) for row in cursor.fetchall()] == [(2, "C3A9", "grün")]


# Compression


def rows_of_program(server: Server, *options: str, statement: str) -> list[list[str]]:
    """What MariaDB's command line client prints."""
    if CLIENT is None:
        pytest.skip("MariaDB's client is not installed: run scripts/setup tests.")
    command = [CLIENT, "--no-defaults", "-h", "127.0.0.1", "-P", str(server.port), "-u", "tester", "--skip-ssl", *options, "sky", "-B", "-e", statement]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return list(csv.reader(io.StringIO(done.stdout), delimiter="\t"))


def sent_bytes(server: Server) -> int:
    """Bytes that were sent to MySQL clients."""
    import urllib.request

    text = urllib.request.urlopen(server.url("/metrics")).read().decode()
    lines = [line for line in text.splitlines() if line.startswith("meridian_bytes_sent_total") and "mysql" in line]
    assert len(lines) == 1, text
    return int(float(lines[0].rsplit(" ", 1)[1]))


def test_compressed_results_are_the_same_and_shorter(server: Server) -> None:
    statement = "SELECT a.objectId, b.ra_PS, REPEAT('x', 200) AS x FROM Object a, Object b WHERE b.objectId < 40 ORDER BY 1, 2 LIMIT 20000"
    before = sent_bytes(server)
    plain = rows_of_program(server, statement=statement)
    between = sent_bytes(server)
    compressed = rows_of_program(server, "--compress", statement=statement)
    after = sent_bytes(server)
    assert compressed == plain and len(plain) > 1000
    assert (after - between) * 5 < between - before


@pytest.mark.parametrize("pure", [True, False])
def test_mysqls_connector_compresses(server: Server, pure: bool) -> None:
    if not pure and not mysql.connector.HAVE_CEXT:
        pytest.skip("The connector has no C extension here.")
    options = {"host": "127.0.0.1", "port": server.port, "user": "tester", "database": "sky", "use_pure": pure, "ssl_disabled": True}
    with mysql.connector.connect(**options, compress=True) as ours, ours.cursor() as cursor:
        for length in [1, 49, 50, 60_000, 300_000, 17 << 20]:
            # As long as a packet, and as several, in both directions.
            cursor.execute("SELECT LENGTH(%s), %s", ("ab" * (length // 2) + "c", "é" * min(length, 300_000)))
            assert cursor.fetchall() == [(length // 2 * 2 + 1, "é" * min(length, 300_000))]
        with pytest.raises(mysql.connector.Error) as raised:
            cursor.execute("SELECT nosuch")
        assert raised.value.errno == 1054
        with ours.cursor(prepared=True) as prepared:
            prepared.execute("SELECT ? + 1", (41,))
            assert [tuple(row) for row in prepared.fetchall()] == [(42,)]


class ZstdConnection(Connection):  # type: ignore[type-arg]
    """PyMySQL in packets that Zstandard has compressed: after the login, which tells the level."""

    speaks_zstd = False
    level = 1

    def __init__(self, level: int, **options: Any) -> None:
        self.level = level
        self.unread, self.received, self.sent, self.number = b"", 0, 0, 0
        super().__init__(client_flag=1 << 26, **options)

    def _request_authentication(self) -> None:
        super()._request_authentication()
        self.speaks_zstd = True

    def write_packet(self, payload: bytes) -> None:
        super().write_packet(payload if self.speaks_zstd else payload + bytes([self.level]))

    def _write_bytes(self, data: bytes) -> None:
        if not self.speaks_zstd:
            return super()._write_bytes(data)
        self.number = 0
        for begun in range(0, len(data), LONGEST):
            part = data[begun : begun + LONGEST]
            packet = compressed_packet(part, self.number, codec=pa.Codec("zstd", self.level).compress)
            self.number, self.sent = (self.number + 1) % 256, self.sent + len(packet)
            super()._write_bytes(packet)

    def _read_bytes(self, num_bytes: int) -> bytes:
        while self.speaks_zstd and len(self.unread) < num_bytes:
            header = super()._read_bytes(7)
            length, within = (int.from_bytes(header[at : at + 3], "little") for at in (0, 4))
            body = super()._read_bytes(length)
            assert header[3] == self.number, (header, self.number)
            self.number, self.received = (self.number + 1) % 256, self.received + 7 + length
            self.unread += pa.decompress(body, decompressed_size=within, codec="zstd", asbytes=True) if within else body
        if not self.speaks_zstd:
            return super()._read_bytes(num_bytes)
        read, self.unread = self.unread[:num_bytes], self.unread[num_bytes:]
        return read


@pytest.mark.parametrize("level", [1, 3, 22])
def test_packets_are_compressed_by_zstandard(server: Server, level: int) -> None:
    options = {"host": "127.0.0.1", "port": server.port, "user": "tester", "database": "sky", "charset": "utf8mb4"}
    with ZstdConnection(level, **options) as ours, ours.cursor() as cursor:
        for length in [1, 49, 50, 60_000, 300_000, 17 << 20]:
            cursor.execute("SELECT LENGTH(%s), %s", ("ab" * (length // 2) + "c", "é" * min(length, 300_000)))
            assert cursor.fetchall() == ((length // 2 * 2 + 1, "é" * min(length, 300_000)),)
        assert ours.sent < 300_000 and ours.received < 300_000
        with pytest.raises(pymysql.Error, match="1054"):
            cursor.execute("SELECT nosuch")
        statement = "SELECT a.objectId, b.ra_PS, REPEAT('x', 200) AS x FROM Object a, Object b WHERE b.objectId < 40 ORDER BY 1, 2 LIMIT 20000"
        before = ours.received
        cursor.execute(statement)
        rows = cursor.fetchall()
        with server.connect(database="sky") as plain, plain.cursor() as other:
            other.execute(statement)
            assert other.fetchall() == rows and len(rows) > 1000
        assert (ours.received - before) * 5 < len(rows) * 200


def compressed_packet(content: bytes, number: int, within: int | None = None, codec: Callable[[bytes], Any] = zlib.compress) -> bytes:
    """A compressed packet, which may say anything of what it contains."""
    body = bytes(codec(content))
    length = len(content) if within is None else within
    return struct.pack("<I", len(body))[:3] + bytes([number]) + struct.pack("<I", length)[:3] + body


def logged_in(server: Server, algorithm: str) -> socket.socket:
    """A connection that compresses from now on."""
    stream = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    header = stream.recv(4, socket.MSG_WAITALL)
    stream.recv(header[0], socket.MSG_WAITALL)
    # The protocol of 4.1, secure connections, compression, and the level of Zstandard.
    flag = {"zlib": 1 << 5, "zstd": 1 << 26}[algorithm]
    login = struct.pack("<IIB23x", 0x0200 | 0x8000 | flag, 1 << 24, 45) + b"tester\0\0\3"
    stream.sendall(struct.pack("<I", len(login))[:3] + b"\x01" + login)
    header = stream.recv(4, socket.MSG_WAITALL)
    answer = stream.recv(header[0], socket.MSG_WAITALL)
    assert answer[0] == 0, answer
    return stream


@pytest.mark.parametrize("algorithm", ["zlib", "zstd"])
def test_damaged_compressed_packets_end_their_connection_alone(server: Server, algorithm: str) -> None:
    def packet(content: bytes, within: int | None = None) -> bytes:
        return compressed_packet(content, 0, within, zlib.compress if algorithm == "zlib" else pa.Codec("zstd").compress)

    ping = b"\x01\0\0\0\x0e"
    with logged_in(server, algorithm) as stream:
        stream.sendall(packet(ping))
        header = stream.recv(7, socket.MSG_WAITALL)
        assert header[3] == 1 and stream.recv(header[0], socket.MSG_WAITALL)[4] == 0
    bomb = b"\xff\xff\xff\0" + bytes(16 << 20)
    for sent in [
        b"\x05\0\0\0\xff\xff\xffnothing",
        packet(ping, within=4000),
        packet(bomb, within=10),
        b"\x00\x00\x00\x00\x00\x00\x00" * 1000 + packet(ping, within=1 << 23),
    ]:
        with logged_in(server, algorithm) as stream:
            try:
                stream.sendall(sent)
                stream.shutdown(socket.SHUT_WR)
                while stream.recv(1 << 16):
                    pass
            except OSError:
                # The server has closed its end before.
                pass
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == ((1,),)
