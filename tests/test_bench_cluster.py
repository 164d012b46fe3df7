"""The benchmark of a cluster on one machine (`make bench-cluster`): a tiny run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY
from meridian_cli import Meridian as Program

sys.path.insert(0, str(REPOSITORY / "bench"))

from meridian_bench.cluster import MERGERS, REGION_QUERIES  # noqa: E402
from meridian_bench.parts import QUERIES, SCAN_QUERIES  # noqa: E402

NUMBER = r"[+-]?[\d.]+"


def test_the_page_is_written(meridian: Program, tmp_path: Path) -> None:
    """Every query has a time of a server alone and of a front end with workers, and either gives the same rows; so has one with many groups, whoever
    merges them."""
    command = [sys.executable, "-m", "meridian_bench.cluster", "--size", "tiny"]
    command += ["--meridian", str(meridian.binary), "--work", str(tmp_path / "work"), "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY / "bench", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "CLUSTER.md").read_text()
    for title in [*QUERIES, *REGION_QUERIES, *SCAN_QUERIES]:
        assert re.search(rf"^\| {re.escape(title)} \| {NUMBER} \| {NUMBER} \| {NUMBER} \|$", page, re.MULTILINE), page
    for who in MERGERS:
        assert re.search(rf"^\| {who} \| {NUMBER} \| {NUMBER} \| {NUMBER} \| \d+ MiB \|$", page, re.MULTILINE), page
    assert "differs" not in page
