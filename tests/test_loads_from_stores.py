"""Loads of files at URLs: in an object store, whose every request is verified, and on servers; with what goes wrong on the way there."""

from __future__ import annotations

import gzip
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import astropy.table
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from complaints import assert_rejected
from meridian_cli import Meridian, Outcome, load_arguments
from object_store import HERE, Fault, Request, Store, object_store, once_each
from small_tables import DIRECTOR

CERTIFICATES = Path(__file__).parent / "certificates"
STARS = 4000
COLUMNS = 12


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with object_store(CERTIFICATES) as store:
        yield store


def stars(count: int, first: int = 0) -> pa.Table:
    """Stars over the whole sky, with columns of digits that no compression makes small."""
    made = np.random.default_rng(first + 1)
    columns: dict[str, object] = {
        "id": np.arange(first, first + count, dtype=np.int64),
        "ra": made.uniform(0, 360, count),
        "dec": np.degrees(np.arcsin(made.uniform(-1, 1, count))),
    }
    for number in range(COLUMNS):
        columns[f"flux{number}"] = made.normal(size=count)
    return pa.table(columns)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stars in Parquet, three files of several row groups, and all of them in CSV and FITS."""
    directory = tmp_path_factory.mktemp("stars")
    for part in range(3):
        pq.write_table(stars(STARS, part * STARS), directory / f"part{part}.parquet", row_group_size=1500)
    duckdb.sql(f"COPY (SELECT * FROM '{directory}/*.parquet' ORDER BY id) TO '{directory}/stars.csv' (HEADER)")
    (directory / "stars.csv.gz").write_bytes(gzip.compress((directory / "stars.csv").read_bytes()))
    whole = duckdb.sql(f"SELECT * FROM '{directory}/*.parquet' ORDER BY id").to_arrow_table()
    astropy.table.Table({name: whole[name].to_numpy() for name in whole.column_names}).write(directory / "stars.fits")
    return directory


@pytest.fixture(scope="module")
def survey(store: Store, files: Path) -> str:
    """The URL of the same files in the store, and of others beside them."""
    for path in files.iterdir():
        store.put(f"dr1/{path.name}", path)
    store.put("dr1/_SUCCESS", b"")
    store.put("dr1/.hidden.parquet", b"no Parquet")
    store.put("dr1/deep/er/part9.parquet", files / "part0.parquet")
    return f"s3://{store.BUCKET}/dr1"


def load(meridian: Meridian, store: Store, data: Path, *urls: str, env: dict[str, str] | None = None, **options: object) -> Outcome:
    arguments = load_arguments(data, "sky", "Star", *map(Path, []), **{**DIRECTOR, **options})
    return meridian.run(*arguments, *urls, env=env or store.environment())


def loaded(meridian: Meridian, data: Path) -> list[tuple[object, ...]]:
    return meridian.rows(data, "sky", "SELECT id, ra, dec, flux0, flux11 FROM Star ORDER BY id")


def wanted(files: Path, pattern: str = "part*.parquet") -> list[tuple[object, ...]]:
    return duckdb.sql(f"SELECT id, ra, dec, flux0, flux11 FROM '{files}/{pattern}' ORDER BY id").fetchall()


def assert_nothing(meridian: Meridian, data: Path) -> None:
    """No table is there, and none of its files."""
    assert not list(data.glob("tables/*/*")), list(data.glob("tables/*/*"))


@pytest.mark.parametrize("name", ["part*.parquet", "stars.csv", "stars.csv.gz", "stars.fits", "part[02].parquet"])
def test_what_is_loaded_is_what_is_in_the_files(meridian: Meridian, store: Store, survey: str, files: Path, tmp_path: Path, name: str) -> None:
    before = len(store.proxy.requests)
    outcome = load(meridian, store, tmp_path / "data", f"{survey}/{name}")
    assert outcome.status == 0, outcome.complaint
    pattern = name if "[" in name else "part*.parquet"
    assert loaded(meridian, tmp_path / "data") == wanted(files, pattern)
    assert f"{survey}/{name}" in meridian.must("tables", "--data", tmp_path / "data", "--parts").text
    asked = store.since(before)
    assert {request.method for request in asked} <= {"GET", "HEAD"}
    # Nothing of it is left on the disk.
    assert not [path for path in (tmp_path / "data").rglob("*") if path.suffix in (".parquet", ".csv", ".gz", ".fits")]


def test_a_prefix_stands_for_the_parquet_files_below_it(meridian: Meridian, store: Store, survey: str, files: Path, tmp_path: Path) -> None:
    for end in ["", "/"]:
        data = tmp_path / f"data{len(end)}"
        outcome = load(meridian, store, data, f"{survey}/deep{end}")
        assert outcome.status == 0, outcome.complaint
        assert loaded(meridian, data) == wanted(files, "part0.parquet")
    outcome = load(meridian, store, tmp_path / "data", f"{survey}/**/*.parquet", max_errors=STARS)
    assert outcome.status == 0, outcome.complaint
    assert loaded(meridian, tmp_path / "data") == wanted(files)


def test_parquet_is_read_by_ranges_of_the_columns_that_are_wanted(meridian: Meridian, store: Store, files: Path, tmp_path: Path) -> None:
    wide = stars(60_000)
    pq.write_table(wide, tmp_path / "wide.parquet", row_group_size=20_000)
    size = (tmp_path / "wide.parquet").stat().st_size
    url = store.put("wide.parquet", tmp_path / "wide.parquet")
    columns = [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "ra", "type": "DOUBLE"}, {"name": "dec", "type": "DOUBLE"}]
    (tmp_path / "schema.json").write_text(str({"columns": columns}).replace("'", '"'))
    before = len(store.proxy.requests)
    outcome = load(meridian, store, tmp_path / "data", url, schema=tmp_path / "schema.json")
    assert outcome.status == 0, outcome.complaint
    asked = store.since(before, "GET")
    assert asked and all(request.headers["range"] and request.headers["if-match"] for request in asked)
    assert sum(len(request.content) for request in asked) < size / 2
    assert len(asked) < 40
    (row,) = meridian.rows(tmp_path / "data", "sky", "SELECT count(*), sum(id), min(ra), max(dec) FROM Star")
    assert row == duckdb.sql("SELECT count(*), sum(id), min(ra), max(dec) FROM wide").fetchall()[0]


def test_a_hats_catalogue_in_a_bucket(meridian: Meridian, store: Store, files: Path, tmp_path: Path) -> None:
    meridian.load(tmp_path / "local", "sky", "Star", files / "part0.parquet", **DIRECTOR)
    meridian.must(
        "export", "--data", tmp_path / "local", "--db", "sky", "--table", "Star", "--format", "hats", "--output", tmp_path / "hats"
    )
    for path in (tmp_path / "hats").rglob("*"):
        if path.is_file():
            store.put(f"hats/{path.relative_to(tmp_path / 'hats')}", path)
    url = f"s3://{store.BUCKET}/hats"
    arguments = load_arguments(tmp_path / "data", "sky", "Star", key="id", kind="director")
    outcome = meridian.run(*arguments, url, env=store.environment())
    assert outcome.status == 0, outcome.complaint
    assert "left out" in outcome.text
    assert loaded(meridian, tmp_path / "data") == wanted(files, "part0.parquet")
    # A catalogue that is not whole is none.
    victim = next(key for key in sorted(store.keys("hats/dataset/Norder")) if key.endswith(".parquet"))
    store.admin.delete_object(Bucket=store.BUCKET, Key=victim)
    outcome = meridian.run(*load_arguments(tmp_path / "other", "sky", "Star", key="id", kind="director"), url, env=store.environment())
    assert_rejected(outcome, "by its properties the catalogue has 4000 rows")


@pytest.mark.parametrize("name", ["part*.parquet", "stars.csv"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault(cut_after=700),
        Fault(shortened_to=700),
        Fault(cut_after=0),
        Fault(is_lost=True),
        Fault(status=503, code="SlowDown"),
        Fault(status=500),
        Fault(status=429),
    ],
    ids=lambda fault: str({name: value for name, value in vars(fault).items() if value not in (0, "", None, False, {})} or "cut"),
)
def test_what_breaks_off_is_read_on(meridian: Meridian, store: Store, survey: str, files: Path, tmp_path: Path, name: str, fault: Fault) -> None:
    before = len(store.proxy.requests)
    # A list has no ranges to be read on from: it is asked for again.
    matches = (lambda request: True) if fault.shortened_to is None else (lambda request: "range" in request.headers)
    with store.faults(once_each(fault, matches, times=2)):
        outcome = load(meridian, store, tmp_path / "data", f"{survey}/{name}")
    assert outcome.status == 0, outcome.complaint
    assert loaded(meridian, tmp_path / "data") == wanted(files)
    assert len(store.since(before)) > 3


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(status=503, code="SlowDown"), ["could not be read in 2 tries", "SlowDown"]),
        (Fault(cut_after=1), ["could not be read in 2 tries"]),
        (Fault(is_lost=True), ["could not be read in 2 tries"]),
        (Fault(status=403, code="ExpiredToken"), ["denied (ExpiredToken)", "get new credentials"]),
        (Fault(status=403, code="RequestTimeTooSkewed"), ["clock of this machine"]),
        (Fault(status=301, code="PermanentRedirect", region="eu-west-3"), ["is in the region eu-west-3", "AWS_REGION=eu-west-3"]),
        (Fault(status=400, code="AuthorizationHeaderMalformed", region="eu-west-3"), ["AWS_REGION=eu-west-3"]),
        (Fault(status=400, code="InvalidArgument"), ["the server answers 400 (InvalidArgument: as the test says)"]),
    ],
    ids=lambda value: (value.code or "cut") if isinstance(value, Fault) else "",
)
@pytest.mark.parametrize("name", ["part1.parquet", "stars.csv.gz"])
def test_what_does_not_pass_is_told(
    meridian: Meridian, store: Store, survey: str, tmp_path: Path, name: str, fault: Fault, words: list[str]
) -> None:
    with store.faults(lambda request: fault if request.method == "GET" or fault.status in (301, 400) else None):
        outcome = load(meridian, store, tmp_path / "data", f"{survey}/{name}", env=store.environment(AWS_MAX_ATTEMPTS="2"))
    assert_rejected(outcome, *words)
    assert_nothing(meridian, tmp_path / "data")


@pytest.mark.parametrize("name", ["part2.parquet", "stars.csv", "stars.fits"])
@pytest.mark.parametrize("cut", [True, False])
def test_a_file_that_changes_while_it_is_read_is_refused(
    meridian: Meridian, store: Store, files: Path, tmp_path: Path, name: str, cut: bool
) -> None:
    """Half of one version and half of another would be rows that nobody ever had."""
    url = store.put(f"changing/{name}", files / name)

    def change() -> None:
        store.put(f"changing/{name}", (files / name).read_bytes() + b" ")

    # After it was looked at; or in the middle of its bytes.
    fault = Fault(cut_after=3000, then=change) if cut else Fault(then=change)
    method = "GET" if cut else "HEAD"
    with store.faults(once_each(fault, lambda request: request.method == method)):
        outcome = load(meridian, store, tmp_path / "data", url)
    assert_rejected(outcome, url, "was changed while it was read")
    assert_nothing(meridian, tmp_path / "data")


def test_names_that_lead_nowhere_are_told(meridian: Meridian, store: Store, survey: str, tmp_path: Path) -> None:
    bucket = f"s3://{store.BUCKET}"
    for url, words in [
        (f"{bucket}/dr1/none.csv", [f"there is no {bucket}/dr1/none.csv"]),
        (f"{bucket}/none/*.csv", ["no file matches"]),
        (f"{bucket}/dr1/[.csv", ["no pattern"]),
        (f"{bucket}/empty/", ["no Parquet files below it"]),
        ("s3://no-such-bucket/x.csv", ["there is no bucket no-such-bucket"]),
        ("s3://no-such-bucket/*.csv", ["there is no bucket no-such-bucket"]),
        ("s3://", ["3 to 63"]),
        ("gs://bucket/x.csv", ["s3, http or https"]),
        ("https://me:sesame@example.org/x.csv", ["leave it out"]),
    ]:
        outcome = load(meridian, store, tmp_path / "data", url)
        assert "sesame" not in assert_rejected(outcome, *words)
    arguments = load_arguments(tmp_path / "data", "sky", "Keyword", headers=True)
    outcome = meridian.run(*arguments, f"{survey}/stars.fits", env=store.environment())
    assert_rejected(outcome, "--headers reads local files")
    assert not (tmp_path / "data").exists()


def test_whoever_may_not_read_is_told_why(meridian: Meridian, store: Store, survey: str, tmp_path: Path) -> None:
    url = f"{survey}/part0.parquet"
    stranger, _ = store.stranger
    for environment, words in [
        ({"AWS_ACCESS_KEY_ID": stranger, "AWS_SECRET_ACCESS_KEY": store.stranger[1]}, ["denied (AccessDenied)", "may not do this"]),
        ({"AWS_SECRET_ACCESS_KEY": "not-the-secret"}, ["denied (SignatureDoesNotMatch)", "AWS_SECRET_ACCESS_KEY"]),
        ({"AWS_ACCESS_KEY_ID": "AKIAUNKNOWN"}, ["denied (InvalidAccessKeyId)", "AWS_ACCESS_KEY_ID"]),
        ({"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, ["there are no credentials", "--no-sign-request"]),
        ({"AWS_SECRET_ACCESS_KEY": None}, ["both are needed"]),
        ({"AWS_PROFILE": "nobody"}, ["no profile nobody"]),
        ({"AWS_ENDPOINT_URL": "localhost:1"}, ["AWS_ENDPOINT_URL"]),
        ({"AWS_ENDPOINT_URL": f"http://{HERE}:1"}, [f"{HERE}:1 cannot be reached"]),
        ({"AWS_ENDPOINT_URL": "http://no.such.host.invalid"}, ["no.such.host.invalid:80 cannot be reached"]),
        ({"AWS_ENDPOINT_URL": f"https://localhost:{store.encrypted.port}"}, ["cannot be reached", "certificate"]),
    ]:
        said = assert_rejected(load(meridian, store, tmp_path / "data", url, env=store.environment(**environment)), *words)  # type: ignore[arg-type]
        for secret in [store.secret, store.stranger[1], "not-the-secret"]:
            assert secret not in said
    assert_nothing(meridian, tmp_path / "data")


def test_buckets_that_everybody_may_read(meridian: Meridian, store: Store, survey: str, files: Path, tmp_path: Path) -> None:
    nobody = store.environment(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)
    for part in range(3):
        store.admin.put_object_acl(Bucket=store.BUCKET, Key=f"dr1/part{part}.parquet", ACL="public-read")
    before = len(store.proxy.requests)
    with store.without_signatures():
        outcome = load(meridian, store, tmp_path / "data", f"{survey}/part*.parquet", env=nobody, no_sign_request=True)
    assert outcome.status == 0, outcome.complaint
    assert loaded(meridian, tmp_path / "data") == wanted(files)
    assert not any("authorization" in map(str.lower, request.headers) for request in store.since(before))
    with store.faults(lambda _: Fault(status=403, code="AccessDenied")):
        refused = load(meridian, store, tmp_path / "other", f"{survey}/part*.parquet", env=nobody, no_sign_request=True)
    assert_rejected(refused, "denied (AccessDenied)", "--no-sign-request")


def test_profiles_and_encrypted_connections(meridian: Meridian, store: Store, survey: str, files: Path, tmp_path: Path) -> None:
    key, secret = store.reader
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(f"[survey]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    (tmp_path / ".aws" / "config").write_text(
        f"[profile survey]\nregion = us-east-1\nendpoint_url = https://localhost:{store.encrypted.port}\nca_bundle = {CERTIFICATES}/ca.pem\n"
    )
    nothing = dict.fromkeys(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"])
    environment = store.environment(**nothing, AWS_PROFILE="survey", HOME=str(tmp_path))
    outcome = load(meridian, store, tmp_path / "data", f"{survey}/part*.parquet", f"{survey}/deep", env=environment, max_errors=STARS)
    assert outcome.status == 0, outcome.complaint
    assert loaded(meridian, tmp_path / "data") == wanted(files)
    assert store.encrypted.requests


def test_secrets_are_in_nothing_that_is_kept_or_said(meridian: Meridian, store: Store, survey: str, tmp_path: Path) -> None:
    environment = store.environment(RUST_LOG="trace", MERIDIAN_LOG="trace", AWS_SESSION_TOKEN="a-token-of-a-session")
    with store.without_signatures():
        outcome = load(meridian, store, tmp_path / "data", f"{survey}/stars.csv", env=environment)
    assert outcome.status == 0, outcome.complaint
    kept = [path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()]
    for secret in [store.secret, "a-token-of-a-session"]:
        assert secret not in outcome.text + outcome.stderr
        assert not any(secret.encode() in content for content in kept)


def test_statements_open_no_urls(meridian: Meridian, store: Store, survey: str, files: Path, tmp_path: Path) -> None:
    meridian.load(tmp_path / "data", "sky", "Star", files / "part0.parquet", **DIRECTOR)
    before = len(store.proxy.requests)
    url, http = f"{survey}/part0.parquet", f"http://{HERE}:{store.proxy.port}/{store.BUCKET}/dr1/part0.parquet"
    for statement in [
        f"SELECT * FROM read_parquet('{url}')",
        f"SELECT * FROM read_csv('{survey}/stars.csv')",
        f"SELECT * FROM read_parquet('{http}')",
        f"SELECT * FROM '{url}'",
        f"SELECT * FROM `{url}`",
        f"CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{url}'",
        f"COPY sky.Star TO '{survey}/stolen.parquet'",
        f"LOAD DATA INFILE '{url}' INTO TABLE sky.Star",
    ]:
        outcome = meridian.run("sql", "--data", tmp_path / "data", "--quiet", statement, env=store.environment())
        assert_rejected(outcome)
    assert store.since(before) == []
    assert f"{survey}/stolen.parquet" not in store.keys()


class FileServer:
    """A server of one file, which breaks off, leads elsewhere, or changes the file."""

    def __init__(self, content: bytes) -> None:
        self.content, self.version, self.breaks, self.changes = content, 1, 0, False
        self.says_version, self.ranges, self.asked = True, True, []  # type: ignore[var-annotated]
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing is shown."""

        self.server = ThreadingHTTPServer((HERE, 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://{HERE}:{self.server.server_address[1]}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append((handler.path, handler.headers.get("range")))
        if handler.path.startswith("/moved"):
            handler.send_response(302)
            handler.send_header("Location", "/stars.csv?signature=not-to-be-shown")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        etag = f'"v{self.version}"'
        begin = 0
        if self.ranges and handler.headers.get("if-range") == etag:
            begin = int(handler.headers["range"].removeprefix("bytes=").partition("-")[0])
        handler.send_response(206 if begin else 200)
        if begin:
            handler.send_header("Content-Range", f"bytes {begin}-{len(self.content) - 1}/{len(self.content)}")
        if self.says_version:
            handler.send_header("ETag", etag)
        rest = self.content[begin:]
        handler.send_header("Content-Length", str(len(rest)))
        handler.end_headers()
        if self.breaks:
            self.breaks -= 1
            handler.wfile.write(rest[: len(rest) // 2])
            handler.close_connection = True
            self.version += self.changes
            return
        handler.wfile.write(rest)


@pytest.fixture
def server(files: Path) -> Iterator[FileServer]:
    server = FileServer((files / "stars.csv").read_bytes())
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.mark.parametrize("ranges", [True, False])
def test_files_of_servers_are_read_on_where_they_break_off(
    meridian: Meridian, store: Store, server: FileServer, files: Path, tmp_path: Path, ranges: bool
) -> None:
    server.breaks, server.ranges = 3, ranges
    outcome = load(meridian, store, tmp_path / "data", f"{server.url}/moved?key=not-to-be-shown")
    assert outcome.status == 0, outcome.complaint
    assert loaded(meridian, tmp_path / "data") == wanted(files)
    assert len(server.asked) > 4
    shown = meridian.must("tables", "--data", tmp_path / "data", "--parts").text
    assert f"{server.url}/moved" in shown and "not-to-be-shown" not in shown + outcome.text + outcome.stderr


def test_files_of_servers_that_change_or_cannot_be_told_apart_are_refused(
    meridian: Meridian, store: Store, server: FileServer, tmp_path: Path
) -> None:
    server.breaks, server.changes = 1, True
    assert_rejected(load(meridian, store, tmp_path / "data", f"{server.url}/stars.csv"), "was changed while it was read")
    server.breaks, server.changes, server.says_version = 1, False, False
    assert_rejected(load(meridian, store, tmp_path / "data", f"{server.url}/stars.csv"), "could not be read", "same file")
    assert_nothing(meridian, tmp_path / "data")


def test_a_load_that_waits_for_a_store_is_cancelled(meridian: Meridian, store: Store, survey: str, tmp_path: Path) -> None:
    """A store that never answers does not keep the load from ending."""
    asked, never = threading.Event(), threading.Event()

    def wait(request: Request) -> Fault | None:
        if request.method != "GET":
            return None
        asked.set()
        return Fault(waits_for=never)

    with store.faults(wait):
        arguments = load_arguments(tmp_path / "data", "sky", "Star", **DIRECTOR)
        process = meridian.start(*arguments, f"{survey}/stars.csv", env=store.environment())
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        never.set()
    assert process.returncode != 0 and b"cancelled" in said
    assert_nothing(meridian, tmp_path / "data")
