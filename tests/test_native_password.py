"""`mysql_native_password`: off unless the operator switches it on, and then for users whose passwords were set for it alone."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pymysql
import pytest

from meridian_cli import Meridian
from serving import Server, serving
from small_tables import load_stars_and_bands
from test_users import PASSWORD, must

# Protocol 4.1, a response of which the length is said, and plugins by name.
PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH = 0x200, 0x8000, 0x8_0000
NATIVE, SHA2 = b"mysql_native_password", b"caching_sha2_password"


def sha1(*parts: bytes) -> bytes:
    return hashlib.sha1(b"".join(parts)).digest()


def native_response(password: str, scramble: bytes) -> bytes:
    once = sha1(password.encode())
    return bytes(a ^ b for a, b in zip(once, sha1(scramble, sha1(once)), strict=True))


class NativeClient:
    """A client that knows nothing newer, and without `plugins` not even that there are plugins."""

    def __init__(self, server: Server, name: str, password: str, *, plugins: bool = True) -> None:
        self.stream = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self.password = password
        greeting, _ = self.read()
        rest = greeting[greeting.index(b"\0") + 1 :]
        self.scramble = rest[4:12] + rest[31:43]
        flags = PROTOCOL_41 | SECURE_CONNECTION | (PLUGIN_AUTH if plugins else 0)
        response = native_response(password, self.scramble) if password else b""
        words = struct.pack("<IIB23s", flags, 1 << 24, 45, b"") + name.encode() + b"\0" + bytes([len(response)]) + response
        self.send(words + (NATIVE + b"\0" if plugins else b""), 1)

    def send(self, payload: bytes, number: int) -> None:
        self.stream.sendall(len(payload).to_bytes(3, "little") + bytes([number]) + payload)

    def read(self) -> tuple[bytes, int]:
        head = self.exactly(4)
        return self.exactly(int.from_bytes(head[:3], "little")), head[3]

    def exactly(self, count: int) -> bytes:
        read = b""
        while len(read) < count:
            more = self.stream.recv(count - len(read))
            assert more, "the server has closed the connection"
            read += more
        return read

    def outcome(self) -> str:
        """`ok`, `switch` to another plugin, or an error's number and sentence."""
        payload, _ = self.read()
        if payload[0] == 0xFE:
            assert payload[1:].startswith(SHA2 + b"\0")
            return "switch"
        if payload[0] == 0:
            return "ok"
        assert payload[0] == 0xFF
        return f"{int.from_bytes(payload[1:3], 'little')} {payload[3:].decode()}"

    def close(self) -> None:
        self.stream.close()


def native_login(server: Server, name: str, password: str = PASSWORD, *, plugins: bool = True) -> str:
    with closing(NativeClient(server, name, password, plugins=plugins)) as client:
        return client.outcome()


@pytest.fixture
def data(meridian: Meridian, tmp_path: Path) -> Path:
    data = load_stars_and_bands(meridian, tmp_path, 50)
    must(meridian, data, "add", "boss", "--admin", password=PASSWORD)
    must(meridian, data, "add", "new", password=PASSWORD)
    must(meridian, data, "add", "old", "--mysql-native-password", password=PASSWORD)
    must(meridian, data, "add", "anonymous", "--no-password")
    return data


@pytest.fixture
def off(meridian: Meridian, data: Path) -> Iterator[Server]:
    with serving(meridian, data) as server:
        yield server


@pytest.fixture
def on(meridian: Meridian, data: Path) -> Iterator[Server]:
    with serving(meridian, data, "--mysql-native-password") as server:
        yield server


def execute(server: Server, name: str, statement: str, password: str = PASSWORD) -> list[tuple[object, ...]]:
    with server.connect(user=name, password=password) as connected, connected.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def error_of(server: Server, statement: str) -> int:
    with pytest.raises(pymysql.Error) as told:
        execute(server, "boss", statement)
    return int(told.value.args[0])


def test_it_is_off_and_clients_are_told(off: Server, meridian: Meridian, data: Path) -> None:
    for name in ("old", "new", "nobody"):
        with closing(NativeClient(off, name, PASSWORD)) as client:
            assert client.outcome() == "switch"
            # Some send what they know all the same.
            client.send(native_response(PASSWORD, client.scramble), 3)
            told = client.outcome()
            assert told.startswith("1251 ") and "--mysql-native-password" in told and "08004" in told
        told = native_login(off, name, plugins=False)
        assert told.startswith("1251 ") and "caching_sha2_password" in told
    assert execute(off, "old", "SHOW VARIABLES LIKE 'mysql_native%'") == [("mysql_native_password", "OFF")]
    for statement in (
        "CREATE USER carl IDENTIFIED BY 'x', dora IDENTIFIED WITH mysql_native_password BY 'x'",
        "ALTER USER new IDENTIFIED WITH 'mysql_native_password' BY 'x'",
        "ALTER USER new IDENTIFIED WITH sha256_password BY 'x'",
    ):
        assert error_of(off, statement) == 1524, statement
    users = {user["name"]: user for user in json.loads(must(meridian, data, "list", "--format", "json"))}
    assert {name for name, user in users.items() if user["mysql_native_password"]} == {"old"} and "carl" not in users
    # A password that is set here has no such hash any more.
    execute(off, "old", "SET PASSWORD = 'another'")
    assert "native" not in must(meridian, data, "list")


def test_anonymous_clients_need_no_plugin(off: Server, on: Server) -> None:
    for server in (off, on):
        for plugins in (True, False):
            assert native_login(server, "anonymous", "", plugins=plugins) == "ok"
            assert native_login(server, "anonymous", "x", plugins=plugins) != "ok"


def test_users_whose_passwords_were_set_for_it_log_in(on: Server) -> None:
    assert execute(on, "new", "SHOW VARIABLES LIKE 'mysql_native%'") == [("mysql_native_password", "ON")]
    for plugins, other in ((True, "switch"), (False, "1045 ")):
        assert native_login(on, "old", plugins=plugins) == "ok"
        for name, password in (("old", "wrong"), ("new", PASSWORD), ("nobody", PASSWORD)):
            assert native_login(on, name, password, plugins=plugins).startswith(other), (name, plugins)
    # Both plugins let in, and the newer one everybody.
    for name in ("old", "new"):
        assert execute(on, name, "SELECT 1") == [(1,)]
    with closing(NativeClient(on, "old", PASSWORD)) as client:
        assert client.outcome() == "ok"
        for password, outcome in ((PASSWORD, "ok"), ("wrong", "switch")):
            response = native_response(password, client.scramble)
            client.send(b"\x11old\0" + bytes([len(response)]) + response + b"\0\x2d\0" + NATIVE + b"\0", 0)
            assert client.outcome() == outcome


def test_statements_say_for_which_plugin_a_password_is(on: Server, meridian: Meridian, data: Path) -> None:
    execute(on, "boss", "CREATE USER carl IDENTIFIED WITH mysql_native_password BY 'x', dora IDENTIFIED BY 'x'")
    assert (native_login(on, "carl", "x"), native_login(on, "dora", "x")) == ("ok", "switch")
    # Without a plugin it stays as it was.
    execute(on, "carl", "SET PASSWORD = 'y'", "x")
    execute(on, "boss", "ALTER USER dora IDENTIFIED BY 'y'")
    assert (native_login(on, "carl", "y"), native_login(on, "dora", "y")) == ("ok", "switch")
    execute(on, "boss", "ALTER USER carl IDENTIFIED WITH caching_sha2_password BY 'z'")
    execute(on, "boss", "ALTER USER dora IDENTIFIED WITH mysql_native_password BY 'z'")
    assert (native_login(on, "carl", "z"), native_login(on, "dora", "z")) == ("switch", "ok")
    assert "password (mysql_native_password too)" in must(meridian, data, "list")
    must(meridian, data, "passwd", "dora", password="z")
    must(meridian, data, "passwd", "carl", "--mysql-native-password", password="z")
    assert (native_login(on, "carl", "z"), native_login(on, "dora", "z")) == ("ok", "switch")


def test_wrong_responses_count_also_where_the_client_leaves(on: Server) -> None:
    for _ in range(10):
        assert native_login(on, "old", "wrong") == "switch"
    told = native_login(on, "old")
    assert told.startswith("3955 ") and "try again" in told
    assert execute(on, "new", "SELECT 1") == [(1,)]


def test_the_log_says_whose_passwords_have_to_be_set_anew(meridian: Meridian, data: Path) -> None:
    for options, words in ((["--mysql-native-password"], ("is on", "others=2")), ([], ("is off", "users=1"))):
        with serving(meridian, data, *options) as server:
            line = next(line for line in server.log.splitlines() if "mysql_native_password is" in line)
            assert all(word in line for word in words), line


def test_mariadbs_client(on: Server) -> None:
    binary = shutil.which("mariadb")
    if binary is None:
        pytest.skip("MariaDB's client is not installed: scripts/setup tests")
    words = [binary, "--no-defaults", "--skip-ssl", "--default-auth=mysql_native_password", "-h127.0.0.1", f"-P{on.port}", "-N", "-e", "SELECT CURRENT_USER()"]
    done = subprocess.run([*words, "-uold", f"-p{PASSWORD}"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("old@"), done.stderr
