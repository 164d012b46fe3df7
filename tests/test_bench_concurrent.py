"""The benchmark of many queries at once (`make bench-concurrent`): a tiny run, Meridian alone, and its comparison of results."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY
from meridian_cli import Meridian as Program

sys.path.insert(0, str(REPOSITORY / "bench"))

from meridian_bench.concurrent_mix import FLIGHT  # noqa: E402
from meridian_bench.concurrent_queries import AT_ONCE, Lookups, alike  # noqa: E402


def test_results_are_compared_to_nine_digits() -> None:
    assert alike([[1, 2.0]], [[1, 2.0 + 1e-10]])
    assert not alike([[1, 2.0]], [[1, 2.0 + 1e-8]])
    assert not alike([[1, 2.0]], [[2, 2.0]])
    assert alike([[0, None]], [[0, None]])
    assert not alike([[0, None]], [[0, 1.0]])


def test_quantiles_are_of_the_slowest() -> None:
    found = Lookups([float(n) for n in range(100)])
    assert (found.at(0.5), found.at(0.99), found.at(0.999)) == (50.0, 99.0, 99.0)


def test_the_page_is_written(meridian: Program, tmp_path: Path) -> None:
    """Every number of scans, every number beside look-ups, the mix, small chunks and the queue have times."""
    command = [sys.executable, "-m", "meridian_bench.concurrent_queries", "--size", "tiny", "--without-peer", "--stripes", "45"]
    command += ["--meridian", str(meridian.binary), "--work", str(tmp_path / "work"), "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY / "bench", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "CONCURRENT.md").read_text()
    assert re.findall(r"^\| (\d+) \| \S+ \(", page, re.MULTILINE) == [str(number) for number in AT_ONCE]
    assert len(re.findall(r"^\| (?:0|10|50) \| [\d.,]+ \| [\d.,]+ \| [\d.,]+ \| [\d.,]+ \|$", page, re.MULTILINE)) == 3
    queue = page.split("## A long queue")[1]
    assert len(re.findall(r"^\| [\d.,]+ \| [\d.,]+ \| [\d.,]+ \| -?\d+ \|$", queue, re.MULTILINE)) == 1
    number = r"[\d.,]+"
    streams = re.findall(rf"^\| (LV1|LV2|HV2) \| (nothing|2 HV2) \| {number} \| {number} \| {number} \|$", page, re.MULTILINE)
    assert streams == [("LV1", "nothing"), ("LV2", "nothing"), ("LV1", "2 HV2"), ("LV2", "2 HV2"), ("HV2", "2 HV2"), ("HV2", "2 HV2")]
    small = re.search(r"\*small chunks\*: ([\d,]+) chunks", page)
    assert small is not None and int(small[1].replace(",", "")) > 200
    flights = re.findall(rf"^\| (\d+) \| ({number}) \| {number} \| {number} \|$", page.split("## Scans of many small chunks")[1].split("## ")[0], re.MULTILINE)
    assert [int(scans) for scans, _ in flights] == list(FLIGHT)
    assert "differs from" not in page
