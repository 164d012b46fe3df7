"""The benchmark of uploaded positions (`make bench-uploads`): a tiny run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY
from meridian_cli import Meridian as Program


def test_the_page_is_written(meridian: Program, tmp_path: Path) -> None:
    """Every way finds the same pairs, and has a time."""
    if shutil.which("stilts") is None:
        pytest.skip("there is no stilts")
    command = [sys.executable, "-m", "meridian_bench.uploads", "--size", "tiny"]
    command += ["--meridian", str(meridian.binary), "--work", str(tmp_path / "work"), "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY / "bench", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "UPLOADS.md").read_text()
    for way in ("`stilts tmatch2`", "`stilts tapquery nupload=1`", "Parquet in a form"):
        assert re.search(rf"^\| {re.escape(way)} \| [\d.]+ \|$", page, re.MULTILINE), page
    assert re.search(r"^\| FITS \| [\d.]+ \| [\d,]+ \| [\d.]+ x \|$", page, re.MULTILINE), page
    assert "has other pairs" not in page
