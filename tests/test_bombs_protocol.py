"""Foreign bytes that would take a server down: packets, bodies, files, connections. It holds what memory it may, lives, and answers
others in time."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import io
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest

from meridian_cli import Meridian
from resident import MIB, watched
from serving import Server, serving, wait_until
from small_tables import DIRECTOR, write_stars

RESIDENT = 500 * MIB
# The longest that a query beside may take: the machine may be busy with other tests, and the program is not optimised.
SECONDS = 20.0
QUERY = "SELECT ra FROM sky.Star WHERE id = 7"
CONNECTIONS = 60
HTTP_TIMEOUT = 2


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some stars over the whole sky."""
    directory = tmp_path_factory.mktemp("bombs")
    meridian.load(directory / "data", "sky", "Star", write_stars(directory / "stars.csv", 20_000), **DIRECTOR)
    return directory / "data"


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    """A server that may take little of the machine."""
    options = ("--memory", "256M", "--cache", "128M", "--threads", 2)
    endpoints = ("--max-connections", CONNECTIONS, "--http-timeout", HTTP_TIMEOUT)
    with serving(meridian, data, *options, *endpoints) as server:
        yield server


# Lists that are bombs.


def parquet(table: pa.Table, **options: object) -> bytes:
    """A table as Parquet."""
    written = io.BytesIO()
    pq.write_table(table, written, **options)
    return written.getvalue()


def repeated_text() -> bytes:
    """3 kB that stand for 200,000 rows of 50 kB."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 200_000, pa.int32()), pa.array(["x" * 50_000]))
    positions = pa.array([1.0] * 200_000)
    return parquet(pa.table({"ra": positions, "dec": positions, "t": text}), compression="zstd")


def lying_footer() -> bytes:
    """A footer that says that it has two thousand million row groups."""
    schema = b"\x19\x2c" + b"\x48\x01r\x15\x02\x00" + b"\x15\x0a\x25\x00\x18\x02ra\x00"
    footer = b"\x15\x02" + schema + b"\x16\x02" + b"\x19\xfc\xff\xff\xff\xff\x07" + b"\x00"
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"


def nested_footer() -> bytes:
    """A footer with groups in groups, a hundred thousand deep."""
    count = 100_000
    length = bytes([count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14])
    footer = b"\x15\x02\x19\xfc" + length + b"\x35\x00\x18\x01a\x15\x02\x00" * count
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"


def fields(count: int) -> bytes:
    """A VOTable of many columns."""
    inner = b"".join(b'<FIELD name="f%d" datatype="int"/>' % number for number in range(count))
    return b"<VOTABLE><RESOURCE><TABLE>" + inner + b"<DATA><TABLEDATA></TABLEDATA></DATA></TABLE></RESOURCE></VOTABLE>"


def header(count: int) -> bytes:
    """A CSV file of many columns."""
    return ",".join(["ra", "dec", *(f"c{number}" for number in range(count))]).encode() + b"\n"


BODIES: dict[str, Callable[[], bytes]] = {
    "a long text in many rows": repeated_text,
    "many rows of one number": lambda: parquet(pa.table({"ra": [1.0] * 9_000_000}), compression="zstd"),
    "a footer that lies": lying_footer,
    "groups within groups": nested_footer,
    "a header of many columns": lambda: header(8000),
    "a header without end": lambda: b"ra,dec," * 3_000_000,
    "a gzip stream of zeros": lambda: gzip.compress(bytes(400 * MIB)),
    "a gzip stream of lines": lambda: gzip.compress(b"ra,dec\n" + b"1,2\n" * (60 * MIB)),
    "a quote without end": lambda: b'ra,dec\n1,"' + b"\n" * (20 * MIB),
    "a VOTable of many columns": lambda: fields(20_000),
    "a VOTable of nested elements": lambda: b"<VOTABLE>" + b"<a>" * (4 * MIB),
    "a VOTable with a text without end": lambda: b'<VOTABLE a="' + b"x" * (40 * MIB),
}


def post(server: Server, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """Status and body of the answer to a list."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=120)
    with contextlib.closing(connection):
        connection.request("POST", "/scs/sky/Star?SR=0.001&RESPONSEFORMAT=csv", body, headers or {})
        response = connection.getresponse()
        return response.status, response.read()


@pytest.mark.parametrize("name", BODIES)
def test_lists(server: Server, name: str) -> None:
    body = BODIES[name]()
    with watched(server, QUERY) as seen:
        status, answer = post(server, body)
    assert status in (400, 413) and b"the list" in answer, (status, answer)
    seen.assert_within(RESIDENT, SECONDS)


def test_many_such_lists_at_once(server: Server) -> None:
    bodies = [repeated_text(), gzip.compress(b"ra,dec\n" + b"1,2\n" * (20 * MIB)), header(5000)] * 3
    with watched(server, QUERY) as seen, ThreadPoolExecutor(len(bodies)) as posting:
        outcomes = list(posting.map(lambda body: post(server, body), bodies))
    assert {status for status, _ in outcomes} <= {400, 413, 503}, outcomes
    seen.assert_within(RESIDENT, SECONDS)
    assert post(server, b"ra,dec\n1,2\n")[0] == 200


def test_the_work_on_a_list_ends_when_its_sender_leaves(server: Server) -> None:
    rows = b"".join(b"%d,%d\n" % (number % 360, number % 80) for number in range(400_000))
    for _ in range(4):
        raw = socket.create_connection(("127.0.0.1", server.http_port), timeout=20)
        head = b"POST /scs/sky/Star?SR=20 HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        raw.sendall(head % (len(rows) + 7) + b"ra,dec\n" + rows)
        time.sleep(0.1)
        raw.close()
    wait_until(server.is_idle, 15, "it is idle again")


# Bodies and heads that do not end.


def receive_all(raw: socket.socket) -> bytes:
    """What comes until the other side ends."""
    received = b""
    with contextlib.suppress(OSError):
        while part := raw.recv(1 << 16):
            received += part
    return received


def test_a_list_that_stops_coming_is_not_waited_for(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=30) as raw:
        raw.sendall(b"POST /scs/sky/Star?SR=1&RESPONSEFORMAT=csv HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n")
        raw.sendall(b"Transfer-Encoding: chunked\r\n\r\n7\r\nra,dec\n\r\n")
        begun = time.monotonic()
        answer = receive_all(raw)
        assert time.monotonic() - begun < HTTP_TIMEOUT + 10
        assert answer.startswith(b"HTTP/1.1 408 ") and b"nothing more of the list came" in answer


def test_heads_that_trickle_keep_nobody_out(server: Server) -> None:
    begun = time.monotonic()
    trickling = []
    for _ in range(CONNECTIONS + 20):
        raw = socket.create_connection(("127.0.0.1", server.http_port), timeout=30)
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        trickling.append(raw)
    health = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    health.request("GET", "/healthz")
    assert health.getresponse().status == 200
    while trickling:
        assert time.monotonic() - begun < HTTP_TIMEOUT + 30, f"{len(trickling)} are still there"
        for raw in list(trickling):
            try:
                raw.sendall(b"x")
            except ConnectionError:
                raw.close()
                trickling.remove(raw)
        time.sleep(0.2)


def test_idle_connections_give_way_and_those_that_are_answered_do_not(server: Server) -> None:
    with contextlib.ExitStack() as held:
        busy = held.enter_context(socket.create_connection(("127.0.0.1", server.http_port), timeout=30))
        busy.sendall(b"POST /scs/sky/Star?SR=1&RESPONSEFORMAT=csv HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\nra,dec\n")
        # Until the server has read the head of that request, the connection has sent nothing.
        time.sleep(0.5)
        for _ in range(CONNECTIONS + 5):
            held.enter_context(socket.create_connection(("127.0.0.1", server.http_port), timeout=30))
        busy.sendall(b"1,2\n")
        assert busy.recv(12) == b"HTTP/1.1 200"


def test_an_address_has_no_more_than_its_share(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data, "--max-connections-per-address", 2, "--max-connections", 9) as server:
        first, second = server.connect(), server.connect()
        with pytest.raises(pymysql.OperationalError) as raised:
            server.connect()
        assert raised.value.args[0] == 1040 and "from this address" in raised.value.args[1]
        server.connect(bind_address="127.0.0.2").close()
        first.close()
        second.close()


@pytest.mark.parametrize("length", [60_000, 1_000_000])
def test_long_queries(server: Server, length: int) -> None:
    with watched(server, QUERY) as seen, socket.create_connection(("127.0.0.1", server.http_port), timeout=30) as raw:
        parameters = b"&".join(b"p%d=%d" % (number, number) for number in range(length // 12))
        with contextlib.suppress(ConnectionError):
            raw.sendall(b"GET /scs/sky/Star?" + parameters + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        receive_all(raw)
        time.sleep(0.2)
    seen.assert_within(RESIDENT, SECONDS)


def test_answers_that_nobody_reads(server: Server) -> None:
    with watched(server, QUERY) as seen, contextlib.ExitStack() as held:
        for _ in range(CONNECTIONS - 10):
            raw = held.enter_context(socket.create_connection(("127.0.0.1", server.http_port), timeout=30))
            raw.sendall(b"GET /scs/sky/Star?RA=0&DEC=0&SR=180&RESPONSEFORMAT=json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        time.sleep(3)
    seen.assert_within(RESIDENT, SECONDS)


# HTTP/2, a frame at a time.


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def test_streams_that_are_begun_and_reset(server: Server) -> None:
    path = b"/scs/sky/Star?RA=0&DEC=0&SR=180"
    head = b"\x82\x86\x04" + bytes([len(path)]) + path + b"\x01\x09localhost"
    with watched(server, QUERY) as seen, socket.create_connection(("127.0.0.1", server.http_port), timeout=30) as raw:
        with contextlib.suppress(ConnectionError):
            raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
            for stream in range(1, 20_001, 2):
                raw.sendall(frame(1, 5, stream, head) + frame(3, 0, stream, b"\0\0\0\x08"))
        time.sleep(1)
    seen.assert_within(RESIDENT, SECONDS)
    wait_until(server.is_idle, 15, "it is idle again")


# Pages of browsers.


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Host": "evil.example"}, 403),
        ("GET", {"Host": "localhost:1"}, 200),
        ("GET", {"Origin": "https://evil.example"}, 200),
        ("POST", {"Origin": "https://evil.example"}, 403),
        ("POST", {"Origin": "null"}, 403),
        ("POST", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", {"Origin": "http://localhost:8888"}, 200),
        ("POST", {}, 200),
    ],
)
def test_pages_of_other_sites_read_and_send_nothing(server: Server, method: str, headers: dict[str, str], status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    with contextlib.closing(connection):
        body = b"ra,dec\n1,2\n" if method == "POST" else None
        target = "/scs/sky/Star?SR=0.01" if body else "/scs/sky/Star?RA=1&DEC=2&SR=0.01"
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        answer = response.read()
    assert response.status == status, answer
    assert status == 200 or b"the service is not called" in answer or b"pages of" in answer


def test_names_that_are_given_are_its_own(meridian: Meridian, data: Path) -> None:
    with serving(meridian, data, "--http-hosts", "sky.example.org") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/healthz", headers={"Host": "SKY.example.org"})
            assert connection.getresponse().status == 200


# MySQL.


def mysql(server: Server) -> socket.socket:
    """A connection that is greeted."""
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    length = int.from_bytes(raw.recv(4)[:3], "little")
    while length > 0:
        length -= len(raw.recv(length))
    return raw


def introduced(server: Server) -> socket.socket:
    """A connection that is let in."""
    raw = mysql(server)
    words = struct.pack("<IIB23s", 0x0008_A200, 1 << 24, 45, b"") + b"raw\0\0mysql_native_password\0"
    raw.sendall(packet(words, 1))
    assert raw.recv(5)[4:5] == b"\0"
    raw.recv(100)
    return raw


def packet(payload: bytes, number: int = 0) -> bytes:
    """A payload with its head."""
    return struct.pack("<I", len(payload))[:3] + bytes([number]) + payload


def send(raw: socket.socket, data: bytes) -> None:
    """Sends; that nobody listens any more is no matter."""
    with contextlib.suppress(OSError):
        raw.sendall(data)


def test_packets_that_do_not_end(server: Server) -> None:
    longest = packet(b"\x03" + b" " * (0xFFFFFF - 1))
    with watched(server, QUERY) as seen, contextlib.ExitStack() as held:
        connections = [held.enter_context(introduced(server)) for _ in range(30)]
        with ThreadPoolExecutor(30) as sending:
            second = b"\xff\xff\xff\x01" + b" " * (0xFFFFFF - 1000)
            list(sending.map(lambda raw: send(raw, longest + second), connections))
        time.sleep(1)
        answers = []
        for raw in connections:
            raw.settimeout(0.5)
            with contextlib.suppress(OSError):
                answers.append(raw.recv(7)[5:7])
    assert struct.pack("<H", 1041) in answers, answers
    seen.assert_within(RESIDENT, SECONDS)
    with server.connect() as connected, connected.cursor() as cursor:
        cursor.execute(f"SELECT length('{'x' * (2 * MIB)}')")
        assert cursor.fetchall() == ((2 * MIB,),)


def test_who_is_not_let_in_yet_holds_next_to_nothing(server: Server) -> None:
    with watched(server, QUERY) as seen, contextlib.ExitStack() as held:
        connections = [held.enter_context(mysql(server)) for _ in range(30)]
        with ThreadPoolExecutor(30) as sending:
            list(sending.map(lambda raw: send(raw, packet(b"x" * (8 * MIB), 1)), connections))
    seen.assert_within(RESIDENT, SECONDS)


def test_who_never_introduces_itself_gives_way(server: Server) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(CONNECTIONS + 5):
            held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
        with server.connect() as connected, connected.cursor() as cursor:
            cursor.execute(QUERY)
            assert len(cursor.fetchall()) == 1


def test_values_that_are_sent_ahead(server: Server) -> None:
    def flood(_: int) -> None:
        with introduced(server) as raw:
            send(raw, packet(b"\x16SELECT ?"))
            time.sleep(0.5)
            for _ in range(6):
                send(raw, packet(b"\x18\x01\0\0\0\0\0" + b"x" * (10 * MIB)))
            time.sleep(1)

    with watched(server, QUERY) as seen, ThreadPoolExecutor(20) as flooding:
        list(flooding.map(flood, range(20)))
    seen.assert_within(RESIDENT, SECONDS)


def test_prepared_statements_that_are_never_closed(server: Server) -> None:
    statement = packet(b"\x16SELECT 1 /* " + b"x" * 1_000_000 + b" */")

    def flood(_: int) -> None:
        with introduced(server) as raw:
            reading = threading.Thread(target=receive_all, args=(raw,), daemon=True)
            reading.start()
            for _ in range(8):
                send(raw, statement)
            time.sleep(1)

    with watched(server, QUERY) as seen, ThreadPoolExecutor(4) as flooding:
        list(flooding.map(flood, range(4)))
    seen.assert_within(RESIDENT, SECONDS)


def test_who_becomes_somebody_else_again_and_again(server: Server) -> None:
    change = packet(b"\x11bob\0\0sky\0\x2d\0mysql_native_password\0")
    with watched(server, QUERY) as seen, introduced(server) as raw:
        reading = threading.Thread(target=receive_all, args=(raw,), daemon=True)
        reading.start()
        for _ in range(5000):
            send(raw, packet(b"\x16SELECT ?") + change)
        time.sleep(0.5)
    seen.assert_within(RESIDENT, SECONDS)
