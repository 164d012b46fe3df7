"""The command line against a server: `meridian sql --server`, its prompt, `meridian upload`, and how they log in."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from meridian_cli import Meridian
from serving import Server, serving
from small_tables import load_stars_and_bands, write_lines
from terminal import CTRL_C, Terminal
from test_users import PASSWORD, must

CERTIFICATES = Path(__file__).parent / "certificates"
STARS = 300
# Rows beyond one block of a response, the last of which make a sum overflow.
MANY = 100_000
OVERFLOWS = f"SELECT id, id + {2**63 - MANY + 1} FROM sky.Number"


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("server-client")
    data = load_stars_and_bands(meridian, directory, STARS)
    numbers = write_lines(directory / "numbers.csv", map(str, range(MANY)), "id")
    meridian.load(data, "sky", "Number", numbers, kind="replicated")
    return data


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path) -> Iterator[Server]:
    with serving(meridian, data) as server:
        yield server


def run(meridian: Meridian, *words: object, text: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Calls the program without what the environment says of users and servers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MERIDIAN_")}
    command = [str(meridian.binary), *map(str, words)]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, env={**kept, **env})


def told(output: str) -> list[str]:
    """What was told besides results, without times."""
    return [line.split(" in ")[0] for line in output.splitlines()]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id, ra, `dec`, version FROM Star WHERE id < 20 ORDER BY id",
        "SELECT COUNT(*) FROM Star; SELECT name FROM Band ORDER BY id; SHOW TABLES",
        "SELECT id FROM Star WHERE id < 0",
        "SELECT NULL AS n, 'Größe' AS t, DATE '2020-02-29' AS d, 1.50 AS m, x'00ff' AS b",
        "SELECT raa FROM Star",
        "SELECT id FROM Sta",
        "SELEC 1",
        "SELECT DATE '2020-01-01' = '2020-02-30'",
        "SELECT ABS(id) FROM Star WHERE version = 'a'",
        f"SELECT * FROM Number WHERE id >= {MANY - 5}",
        OVERFLOWS,
        "",
        "EXPLAIN SELECT COUNT(*) FROM Star",
    ],
)
@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_a_server_gives_what_its_data_directory_gives(
    meridian: Meridian, data: Path, server: Server, statement: str, form: str
) -> None:
    """Rows, warnings, and errors with their numbers, also those that come after many rows."""
    words = ("--db", "sky", "--format", form, statement)
    here = run(meridian, "sql", "--data", data, *words)
    there = run(meridian, "sql", "--server", server.url(""), *words)
    assert there.stdout == here.stdout
    assert told(there.stderr) == told(here.stderr)
    assert there.returncode == here.returncode


def test_files_are_the_same(meridian: Meridian, data: Path, server: Server, tmp_path: Path) -> None:
    for name in ("parquet", "fits", "arrow"):
        words = ("--db", "sky", "--format", name, "SELECT * FROM Star ORDER BY id")
        for place, where in (("here", ("--data", data)), ("there", ("--server", server.url("")))):
            done = run(meridian, "sql", *where, "--output", tmp_path / f"{place}.{name}", *words)
            assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "there.parquet").equals(pq.read_table(tmp_path / "here.parquet"))
    assert (tmp_path / "there.fits").read_bytes() == (tmp_path / "here.fits").read_bytes()


def test_an_error_leaves_no_file(meridian: Meridian, server: Server, tmp_path: Path) -> None:
    done = run(meridian, "sql", "--server", server.url(""), "--format", "csv", "--output", tmp_path / "out.csv", OVERFLOWS)
    assert done.returncode == 1 and "1690 (22003)" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_statements_of_adql_and_from_a_pipe(meridian: Meridian, server: Server) -> None:
    done = run(meridian, "sql", "--server", server.url(""), "--dialect", "adql", "--format", "csv", 'SELECT TOP 2 id AS "N" FROM Star ORDER BY id')
    assert done.stdout == "N\n0\n1\n", done.stderr
    done = run(meridian, "sql", "--server", server.url(""), "--quiet", "--format", "csv", text="SELECT 1;\nSELECT\n2;\n")
    assert (done.stdout, done.stderr) == ("1\n1\n2\n2\n", "")


def test_queries_are_submitted_and_cancelled(meridian: Meridian, server: Server) -> None:
    submitted = run(meridian, "sql", "--server", server.url(""), "--format", "csv", "SUBMIT SELECT COUNT(*) FROM Star")
    heading, number = submitted.stdout.split()
    assert heading == "id"
    shown = run(meridian, "query", "show", "--server", server.url(""), "--wait", number)
    assert shown.returncode == 0 and "COMPLETED" in shown.stdout
    again = run(meridian, "sql", "--server", server.url(""), f"CANCEL {number}")
    assert again.returncode == 1 and number in again.stderr


def test_what_needs_a_connection_says_so(meridian: Meridian, server: Server) -> None:
    done = run(meridian, "sql", "--server", server.url(""), "SET @x = 1")
    assert done.returncode == 1 and "connections of MySQL's protocol" in done.stderr
    done = run(meridian, "sql", "--server", server.url(""), "--memory", "1G", "SELECT 1")
    assert done.returncode == 2 and "--server" in done.stderr
    done = run(meridian, "sql", "SELECT 1")
    assert done.returncode == 2 and "--data" in done.stderr


def test_servers_that_are_none(meridian: Meridian, server: Server) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        done = run(meridian, "sql", "--server", f"http://127.0.0.1:{unheard.getsockname()[1]}", "SELECT 1")
    assert done.returncode == 1 and "no server answers at http://127.0.0.1" in done.stderr
    for url, sentence in [
        (f"http://127.0.0.1:{server.port}", "no server"),
        (f"https://127.0.0.1:{server.http_port}", "no server answers at https://"),
        ("ftp://127.0.0.1", "ftp is not spoken"),
        ("http://ann:secret@127.0.0.1", "MERIDIAN_PASSWORD"),
    ]:
        done = run(meridian, "sql", "--server", url, "SELECT 1")
        assert done.returncode == 1 and sentence in done.stderr, done.stderr
        assert "secret" not in done.stderr


# --- the endpoint ---------------------------------------------------------------------------------------------------------------------


def post(server: Server, body: object, form: str = "csv", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    text = body if isinstance(body, str) else json.dumps(body)
    connection.request("POST", f"/sql?format={form}", text, headers)
    response = connection.getresponse()
    return response, response.read()


def test_one_statement_with_limits(server: Server) -> None:
    _, rows = post(server, {"statement": "SELECT id FROM Star ORDER BY id", "database": "sky", "row_limit": 2})
    assert rows == b"id\n0\n1\n"
    response, problem = post(server, {"statement": "SELECT SLEEP(30)", "time_limit": 0.2})
    assert response.status == 400 and json.loads(problem)["code"] == 3024
    for body, status, words in [
        ("{", 400, "cannot be read"),
        ({"statement": "SELECT 1; SELECT 2"}, 400, "one statement"),
        ({"statement": "SELECT 1", "dialect": "pl"}, 400, "dialect"),
        ({"statement": "SELECT 1", "limit": 3}, 400, "row_limit"),
        ({"statement": "SELECT 1", "time_limit": 0}, 400, "time_limit"),
        ({"statement": "SELECT * FROM sky.Nothing"}, 404, "Nothing"),
    ]:
        response, problem = post(server, body)
        assert response.status == status and words in json.loads(problem)["error"], problem
    response, problem = post(server, {"statement": "SELECT 1"}, "xml")
    assert response.status == 400 and "it is one of" in json.loads(problem)["error"]


def test_a_late_error_breaks_off_or_is_a_trailer(server: Server) -> None:
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        post(server, {"statement": OVERFLOWS})
    # http.client leaves trailers unread: they are read from the socket.
    text = json.dumps({"statement": OVERFLOWS})
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as connection:
        request = f"POST /sql?format=csv HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\nConnection: TE, close\r\nContent-Length: {len(text)}\r\n\r\n{text}"
        connection.sendall(request.encode())
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    trailers = received.rsplit(b"\r\n0\r\n", 1)[1].decode()
    name, value = trailers.strip().split(": ", 1)
    assert name == "meridian-error" and json.loads(value)["code"] == 1690


# --- logging in -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server in TLS with the user ann, and a token of hers."""
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("guarded"), STARS)
    must(meridian, data, "add", "ann", password=PASSWORD)
    must(meridian, data, "add", "bob", password=PASSWORD)
    must(meridian, data, "grant", "ann", "--read", "sky")
    token = next(word for word in must(meridian, data, "token", "ann").split() if word.startswith("mrd_"))
    with serving(meridian, data, "--tls-cert", CERTIFICATES / "server.pem", "--tls-key", CERTIFICATES / "server.key") as server:
        yield server, token


def test_passwords_and_tokens_log_in(meridian: Meridian, guarded: tuple[Server, str], tmp_path: Path) -> None:
    server, token = guarded
    secure, clear = f"https://localhost:{server.http_port}", server.url("")
    ca = ("--ca", CERTIFICATES / "ca.pem")
    who = "SELECT SUBSTRING_INDEX(USER(), '@', 1)"
    for words, text, env in [
        (("--server", clear, "--user", "ann"), None, {"MERIDIAN_PASSWORD": PASSWORD}),
        (("--server", clear.replace("//", "//ann@")), None, {"MERIDIAN_PASSWORD": PASSWORD}),
        (("--server", clear, "--user", "ann", "--password"), f"{PASSWORD}\n", {}),
        (("--server", clear), None, {"MERIDIAN_TOKEN": token}),
        (("--server", secure, *ca), None, {"MERIDIAN_TOKEN": token}),
        (("--server", secure), None, {"MERIDIAN_TOKEN": token, "MERIDIAN_CA": str(CERTIFICATES / "ca.pem")}),
    ]:
        done = run(meridian, "sql", *words, "--quiet", "--format", "csv", who, text=text, **env)
        assert done.stdout.splitlines()[1:] == ["ann"], done.stderr
    submitted = run(meridian, "query", "submit", "--server", clear, "--wait", "--db", "sky", "SELECT COUNT(*) AS n FROM Star", MERIDIAN_TOKEN=token)
    assert submitted.returncode == 0, submitted.stderr
    number = submitted.stdout.split()[0]
    result = run(meridian, "query", "result", "--server", secure, *ca, "--user", "ann", "--format", "csv", number, MERIDIAN_PASSWORD=PASSWORD)
    assert result.stdout == f"n\n{STARS}\n", result.stderr
    listed = run(meridian, "query", "list", "--server", clear, "--format", "json", MERIDIAN_TOKEN=token)
    assert any(json.loads(line)["id"] == int(number) for line in listed.stdout.splitlines())
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for words, env, sentence in [
        (("--server", clear, "--user", "ann"), {}, "MERIDIAN_PASSWORD"),
        (("--server", clear, "--user", "ann"), {"MERIDIAN_PASSWORD": "wrong"}, "log in with"),
        (("--server", clear), {"MERIDIAN_TOKEN": "mrd_no"}, "log in with"),
        (("--server", secure), {"MERIDIAN_TOKEN": token}, "https"),
        (("--server", secure, "--ca", empty), {"MERIDIAN_TOKEN": token}, "no certificates in PEM"),
        (("--server", "http://192.0.2.1:9"), {"MERIDIAN_TOKEN": token}, "not sent to 192.0.2.1:9 in clear"),
        (("--server", clear, "--user", "bob", "--db", "sky"), {"MERIDIAN_PASSWORD": PASSWORD}, "1044"),
    ]:
        done = run(meridian, "sql", *words, "SELECT 1", **env)
        assert done.returncode == 1 and sentence in done.stderr, done.stderr


def test_files_are_uploaded(meridian: Meridian, guarded: tuple[Server, str], tmp_path: Path) -> None:
    server, token = guarded
    first = write_lines(tmp_path / "first.csv", ["1,10.5,20.5", "2,11,21"], "id,ra,dec")
    more = write_lines(tmp_path / "more.csv", ["22,3,12"], "dec,id,ra")

    def upload(*words: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return run(meridian, "upload", "--server", server.url(""), *words, text=text, MERIDIAN_TOKEN=token)

    done = upload("--table", "list", first)
    assert done.returncode == 0 and done.stdout.startswith("ann.list: 2 rows added"), done.stderr
    again = upload("--table", "ann.list", first)
    assert again.returncode == 1 and "there is a table" in again.stderr
    done = upload("--table", "ann.list", "--append", more)
    assert done.stdout.startswith("ann.list: 1 row added"), done.stderr
    done = upload("--table", "list", "--append", "--quiet", "/dev/stdin", text="id,dec,ra\n4,-5,13\n")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    rows = run(meridian, "sql", "--server", server.url(""), "--quiet", "--format", "csv", "SELECT * FROM ann.list ORDER BY id", MERIDIAN_TOKEN=token)
    assert rows.stdout == "id,ra,dec\n1,10.5,20.5\n2,11.0,21.0\n3,12.0,22.0\n4,13.0,-5.0\n"
    for words, sentence in [
        (("--table", "sky.Star", "--append", more), "your own database"),
        (("--table", "nothing", "--append", more), "nothing"),
        (("--table", "odd", tmp_path), "is a directory"),
        (("--table", "odd", tmp_path / "absent.csv"), "cannot read"),
        (("--table", "list", "--append", write_lines(tmp_path / "bad.csv", ["x,1,2"], "id,ra,dec")), "line 2"),
        # It has a key and positions, so that it was made a director.
        (("--table", "list", "--append", write_lines(tmp_path / "lacks.csv", ["5"], "id")), "the column ra gets no value"),
        (("--table", "list", "--append", write_lines(tmp_path / "twice.csv", ["4,1,2"], "id,ra,dec")), "key 4"),
    ]:
        done = upload(*words)
        assert done.returncode == 1 and sentence in done.stderr, done.stderr


def test_refusals_of_large_files_are_told(meridian: Meridian, guarded: tuple[Server, str], tmp_path: Path) -> None:
    """The server responds before it has read the file, and most clients were told that no server answers."""
    server, token = guarded
    large = tmp_path / "large.csv"
    with large.open("w") as lines:
        lines.write("id,ra,dec\n")
        lines.writelines(f"{number},{number % 360}.25,{number % 90}.125\n" for number in range(110_000))
    assert large.stat().st_size > 2_000_000
    for number in range(10):
        words, sentence = [
            (("--table", "sky.Star", "--append"), "your own database"),
            (("--table", "sky.other"), "your own database"),
            (("--table", "nothing", "--append"), "nothing"),
        ][number % 3]
        done = run(meridian, "upload", "--server", server.url(""), *words, large, MERIDIAN_TOKEN=token)
        assert done.returncode == 1 and sentence in done.stderr and "no server answers" not in done.stderr, done.stderr
    # One that sends everything before it reads gets the response, too.
    for _ in range(10):
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        connection.request("POST", "/load/sky.Star", large.read_bytes(), {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        assert response.status == 403 and b"your own database" in response.read()
        connection.close()


# --- the prompt -----------------------------------------------------------------------------------------------------------------------


def test_the_prompt_at_a_server(meridian: Meridian, server: Server, tmp_path: Path) -> None:
    command = [str(meridian.binary), "sql", "--server", server.url("")]
    environment = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    terminal = Terminal(command, environment)
    try:
        terminal.wait_for("sky> ")
        terminal.enter("\\d")
        listed = terminal.wait_for("sky> ")
        assert "Star" in listed and "Band" in listed and str(STARS) in listed
        terminal.enter("\\d Star")
        assert "bigint" in terminal.wait_for("sky> ")
        terminal.enter("SELECT raa FROM Star;")
        assert "did you mean ra?" in terminal.wait_for("^^^")
        terminal.wait_for("sky> ")
        terminal.press("SELECT vers\t FROM Star LIMIT 1;\r")
        assert "version" in terminal.wait_for("1 row in ")
        terminal.wait_for("sky> ")
        terminal.enter("SELECT SLEEP(100);")
        terminal.wait_for("SLEEP(100);")
        # Until the server runs it.
        with server.connect() as connection, connection.cursor() as cursor:
            count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT SLEEP(100)%'"
            while cursor.execute(count) and cursor.fetchall() == ((0,),):
                pass
            terminal.press(CTRL_C)
            terminal.wait_for("cancelled")
            while cursor.execute(count) and cursor.fetchall() != ((0,),):
                pass
        terminal.wait_for("sky> ")
        terminal.enter("use nothing;")
        terminal.wait_for("1049 (42000)")
        terminal.wait_for("sky> ")
        terminal.enter("KILL 1;")
        terminal.wait_for("connections of MySQL's protocol")
        terminal.enter("\\q")
        assert terminal.wait_for_end() == 0
    finally:
        terminal.close()
