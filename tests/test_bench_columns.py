"""The benchmark of an archive of many columns (`make bench-columns`): a tiny run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY
from meridian_cli import Meridian


def test_the_page_is_written(meridian: Meridian, tmp_path: Path) -> None:
    """Each list has a time, and had all tables or columns."""
    command = [sys.executable, "-m", "meridian_bench.many_columns", "--meridian", str(meridian.binary), "--work", str(tmp_path / "work")]
    command += ["--out", str(tmp_path), "--tables", "12", "--columns", "7", "--rounds", "1"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY / "bench")}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "COLUMNS.md").read_text()
    assert len(re.findall(r"^\| .+ \| [\d.,]+ \| [\d.,]+ \|$", page, re.MULTILINE)) == 5, page
