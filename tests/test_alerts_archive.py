"""Archives of alert databases: Parquet files of everything that is published, whole or not there."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "meridian_apdb")]

from alert_model import PUBLISHED_COLUMNS, rows_of  # noqa: E402
from meridian_cli import Meridian  # noqa: E402
from serving import serving  # noqa: E402
from test_alerts_published import SCHEMA, Night, State, execute, create  # noqa: E402

TABLES = ("DiaObject", "DiaSource", "DiaForcedSource")


def assert_archived(directory: Path, wanted: State, edition: int) -> None:
    manifest = json.loads((directory / "manifest.json").read_text())
    assert (manifest["format"], manifest["version"]) == ("meridian-alerts-archive", 1)
    assert (manifest["database"], manifest["edition"], manifest["schema_version"]) == ("prompt", edition, "0.1.1")
    assert (directory / "schema.yaml").read_text() == SCHEMA.read_text()
    for file in manifest["files"]:
        content = (directory / file["path"]).read_bytes()
        assert len(content) == file["bytes"]
        assert hashlib.sha256(content).hexdigest() == file["sha256"]
        assert pq.read_metadata(directory / file["path"]).num_rows == file["rows"]
    listed = {file["path"] for file in manifest["files"]}
    found = {str(path.relative_to(directory)) for path in directory.rglob("*.parquet")}
    assert listed == found
    sums = [line.split("  ") for line in (directory / "SHA256SUMS").read_text().splitlines()]
    assert sums == [[file["sha256"], file["path"]] for file in manifest["files"]]
    for table in TABLES:
        rows = []
        for file in manifest["files"]:
            if file["table"] == table:
                rows += rows_of(pq.read_table(directory / file["path"]), PUBLISHED_COLUMNS[table])
        assert sorted(rows, key=repr) == wanted[table], table


def test_archives_have_what_is_published(meridian: Meridian, tmp_path: Path) -> None:
    data = tmp_path / "data"
    create(meridian, data, "--keep-nights", 0)
    outcome = meridian.run("alerts", "archive", "prompt", "--data", data, "--output", tmp_path / "none")
    assert outcome.status == 1 and "nothing is published" in outcome.complaint
    with serving(meridian, data) as server:
        # A server publishes by itself as well, so that there may be more editions.
        night, editions = Night(server, 4), []
        for _ in range(2):
            night.change(12)
            night.publish(server)
            with server.connect(database="prompt") as connection:
                [[last]] = execute(connection, "SELECT MAX(edition) FROM Edition")
            editions.append(last)
        # Beside a server.
        said = meridian.must("alerts", "archive", "prompt", "--data", data, "--output", tmp_path / "all").text
        assert f"through edition {editions[1]} in 3 files" in said
        assert_archived(tmp_path / "all", night.history[1][1], editions[1])
        options = ["--as-of", night.history[0][0], "--rows-per-file", 10]
        meridian.must("alerts", "archive", "prompt", "--data", data, "--output", tmp_path / "first", *options)
        assert_archived(tmp_path / "first", night.history[0][1], editions[0])
        assert len(list((tmp_path / "first" / "DiaSource").iterdir())) > 1
    for wrong, words in (
        (["--output", tmp_path / "all"], "it is there already, and not empty"),
        (["--output", tmp_path / "other", "--as-of", "tomorrow"], "--as-of cannot be set to 'tomorrow'"),
        (["--output", tmp_path / "other", "--as-of", "2001-01-01"], "nothing is published of prompt by then"),
    ):
        outcome = meridian.run("alerts", "archive", "prompt", "--data", data, *wrong)
        assert outcome.status == 1 and words in outcome.complaint, outcome.complaint
    outcome = meridian.run("alerts", "archive", "nothing", "--data", data, "--output", tmp_path / "other")
    assert outcome.status == 1 and "there is no alert database nothing" in outcome.complaint
    killed(meridian, data, tmp_path, (night.history[1][1], editions[1]))


def killed(meridian: Meridian, data: Path, directory: Path, wanted: tuple[State, int]) -> None:
    """An archive that is killed has no name, or is whole; the next one takes its place."""
    output = directory / "killed"
    chance = random.Random(8)
    for _ in range(3):
        command = [meridian.binary, "alerts", "archive", "prompt", "--data", data, "--output", output]
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.0, 1.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if output.exists():
            break
    if not output.exists():
        meridian.must("alerts", "archive", "prompt", "--data", data, "--output", output)
    assert_archived(output, *wanted)
    assert not (directory / "killed.part").exists()
