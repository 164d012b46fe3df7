"""The benchmark of uploaded positions (`make bench-uploads`): a tiny run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from conftest import REPOSITORY
from meridian_cli import Meridian as Program

LSDB = Path(os.environ.get("MERIDIAN_HATS_PYTHON", REPOSITORY / ".venv" / "hats" / "bin" / "python"))
sys.path.insert(0, str(REPOSITORY / "bench"))

from meridian_bench.uploads import differing, in_order  # noqa: E402


def test_pairs_are_compared_as_often_as_they_are_there() -> None:
    """A pair that an answer has twice is not the same as one."""
    once = in_order(pa.table({"number": [2, 1, 1], "key": [5, 4, 3]}))
    assert once.tolist() == [[1, 3], [1, 4], [2, 5]]
    assert differing(once, in_order(pa.table({"a": [1, 2, 1], "b": [4, 5, 3]}))) == 0
    assert differing(once, in_order(pa.table({"a": [1, 2, 1, 2], "b": [4, 5, 3, 5]}))) == 1
    assert differing(once, in_order(pa.table({"a": [1, 1, 1], "b": [4, 4, 3]}))) == 2


def test_the_page_is_written(meridian: Program, tmp_path: Path) -> None:
    """Every way finds the same pairs, and has a time."""
    if shutil.which("stilts") is None:
        pytest.skip("there is no stilts")
    command = [sys.executable, "-m", "meridian_bench.uploads", "--size", "tiny"]
    command += ["--meridian", str(meridian.binary), "--work", str(tmp_path / "work"), "--out", str(tmp_path)]
    # A program that is not there is told of, and the others are measured.
    command += ["--lsdb", str(LSDB)]
    done = subprocess.run(command, cwd=REPOSITORY / "bench", capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "UPLOADS.md").read_text()
    ways = ["`stilts tmatch2`", "`stilts tapquery nupload=1`", "Parquet in a form"]
    if LSDB.exists():
        ways.append("LSDB")
        assert re.search(r"LSDB [\d.]+, in a process that runs already", page), page
    else:
        assert "LSDB is left out" in page
    for way in ways:
        assert re.search(rf"^\| {re.escape(way)} \| [\d.]+ \|$", page, re.MULTILINE), page
    assert re.search(r"^\| FITS \| [\d.]+ \| [\d,]+ \| [\d.]+ x \|$", page, re.MULTILINE), page
    assert "has other pairs" not in page
