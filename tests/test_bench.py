"""The benchmark's harness: a tiny run with DuckDB; its comparison, statistics, constants and chunk numbers."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from conftest import REPOSITORY
from meridian_cli import Meridian

sys.path.insert(0, str(REPOSITORY / "bench"))

from meridian_bench.chunker import chunk_ids  # noqa: E402
from meridian_bench.comparison import difference  # noqa: E402
from meridian_bench.constants import Constants  # noqa: E402
from meridian_bench.catalogue import Sky  # noqa: E402
from meridian_bench.contenders.base import Setup  # noqa: E402
from meridian_bench.install import BENCH  # noqa: E402
from meridian_bench.machine import page_cache  # noqa: E402
from meridian_bench.merging import Unlike, merged  # noqa: E402
from meridian_bench.queries import QUERIES  # noqa: E402
from meridian_bench.report import readme_link  # noqa: E402
from meridian_bench.samples import percentile, ratio  # noqa: E402


def run_tiny(meridian: Meridian, work: Path, *options: str) -> None:
    """Runs the harness at its tiny size; the report and the samples are then in `work`."""
    # The tests' environment does not have LSDB: a peer that cannot take part must not stop the others.
    command = [sys.executable, "-m", "meridian_bench", "run", "--size", "tiny", "--peers", "duckdb,lsdb", *options]
    command += ["--no-install", "--meridian", str(meridian.binary), "--work", str(work), "--out", str(work)]
    done = subprocess.run(command, cwd=REPOSITORY / "bench", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def run(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the report and the samples of a tiny run."""
    work = tmp_path_factory.mktemp("bench")
    run_tiny(meridian, work)
    return work


def test_report_has_every_row_and_no_differing_answer(run: Path) -> None:
    """Each query was answered by both, warm, and each answer compared."""
    record = json.loads((run / "samples.json").read_text())
    warm = {asking["name"]: asking for asking in record["queries"] if not asking["cold"]}
    assert list(warm) == [query.name for query in QUERIES]
    report = (run / "REPORT.md").read_text()
    for name, asking in warm.items():
        assert f"| **{name}** " in report
        assert not asking["complaints"], name
        assert not asking["differences"], name
        assert asking["compared"] > 0, name
        assert set(asking["times"]) == {"meridian", "duckdb"}
    assert "answers that were compared are the same." in report
    assert {asking["name"] for asking in record["queries"] if asking["cold"]} >= {"LV1", "cone", "HV2", "HV2b"}
    assert {(load["contender"], load["table"]) for load in record["loads"]} == {
        (name, table) for name in ("meridian", "duckdb") for table in ("Object", "Source", "Optical", "Infrared")
    }
    assert all(min(load["times"]) > 0 and len(load["times"]) == 2 and load["bytes"] > 0 and load["peak"] > 0 for load in record["loads"])


def test_a_peer_that_cannot_take_part_is_left_out(run: Path) -> None:
    """The report says why."""
    record = json.loads((run / "samples.json").read_text())
    assert list(record["absent"]) == ["lsdb"]
    assert "LSDB is absent or fell out: No module named 'lsdb'" in (run / "REPORT.md").read_text()


def test_chosen_queries_load_what_they_need(meridian: Meridian, tmp_path: Path) -> None:
    """And whom none of them is for takes no part."""
    run_tiny(meridian, tmp_path, "--queries", "hv1,near")
    record = json.loads((tmp_path / "samples.json").read_text())
    assert [asking["name"] for asking in record["queries"] if not asking["cold"]] == ["HV1", "near"]
    assert {load["table"] for load in record["loads"]} == {"Object"}
    assert record["absent"] == {"lsdb": "it is asked none of the chosen queries"}
    report = (tmp_path / "REPORT.md").read_text()
    assert "- Only these queries were asked: HV1, near." in report
    near = next(line for line in report.splitlines() if line.startswith("| **near** "))
    assert near.startswith("| **near** pairs within 0.02 degree in 0.04 square degrees | ")


def test_contenders_that_run_one_at_a_time_answer_the_same(meridian: Meridian, tmp_path: Path) -> None:
    """In as many rounds, each begun by another one, and compared."""
    run_tiny(meridian, tmp_path, "--apart", "--queries", "lv1,hv3,near")
    record = json.loads((tmp_path / "samples.json").read_text())
    warm = {asking["name"]: asking for asking in record["queries"] if not asking["cold"]}
    assert list(warm) == ["LV1", "HV3", "near"]
    for asking in warm.values():
        assert not asking["complaints"] and not asking["differences"]
        blocks = [[len(block) for block in times] for times in asking["times"].values()]
        assert blocks == [[5, 5] if asking["name"] == "LV1" else [1, 1]] * 2
        assert asking["compared"] == sum(blocks[0])
    assert "Taking turns round by round" in (tmp_path / "REPORT.md").read_text()


def test_a_report_leads_to_what_explains_it() -> None:
    """From wherever it is kept within the project; a report outside has no way there that would last."""
    assert readme_link(BENCH) == "[README.md](README.md)"
    assert readme_link(BENCH / "large") == "[README.md](../README.md)"
    assert readme_link(Path("/elsewhere")) == "`bench/README.md`"


def test_plots_are_drawn(run: Path) -> None:
    """Every plot that the report shows is there, and is XML."""
    report = (run / "REPORT.md").read_text()
    plots = sorted((run / "figures").glob("*.svg"))
    assert {"scans.svg", "spatial_joins.svg", "load.svg", "bytes.svg", "latency_cone.svg"} <= {plot.name for plot in plots}
    for plot in plots:
        xml.etree.ElementTree.parse(plot)
        assert f"(figures/{plot.name})" in report


def test_report_is_written_again_from_samples(run: Path, tmp_path: Path) -> None:
    """The same report comes from the raw file."""
    command = [sys.executable, "-m", "meridian_bench", "report", str(run / "samples.json"), "--out", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY / "bench", check=True, capture_output=True)
    assert (tmp_path / "REPORT.md").read_text() == (run / "REPORT.md").read_text()


def test_a_differing_answer_is_shown_and_fails(run: Path, tmp_path: Path) -> None:
    """A difference in the samples is bold in the report, and the exit status tells."""
    record = json.loads((run / "samples.json").read_text())
    one = {"contender": "meridian", "against": "duckdb", "found": "1 of 9 rows differ", "text": "SELECT 1"}
    record["queries"][-1]["differences"].append(one)
    (tmp_path / "samples.json").write_text(json.dumps(record))
    command = [sys.executable, "-m", "meridian_bench", "report", "samples.json", "--out", "."]
    environment = {"PYTHONPATH": str(REPOSITORY / "bench"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True)
    assert done.returncode == 1
    report = (tmp_path / "REPORT.md").read_text()
    assert "**Answers differ: see below.**" in report
    assert "1 of 9 rows differ.**" in report


def of_another_peer(record: dict[str, Any], *chosen: str) -> dict[str, Any]:
    """The record as a run with MariaDB instead would have it, asked only some of the queries."""
    other: dict[str, Any] = json.loads(json.dumps(record).replace('"duckdb"', '"mariadb"'))
    other["about"].update(groups=[["mariadb"]], chosen=list(chosen), seed=7, skipped=["duckdb"], rounds=1)
    other["queries"] = [asked for asked in other["queries"] if asked["name"] in chosen]
    other["absent"] = {}
    other.pop("cones", None)
    return other


def test_runs_with_other_peers_make_one_report(run: Path, tmp_path: Path) -> None:
    """Peers that were asked on another day stand beside the others, each compared with Meridian as it was then."""
    first = json.loads((run / "samples.json").read_text())
    other = of_another_peer(first, "LV1", "cone")
    for asked in other["queries"]:
        # The best of all.
        asked["times"]["mariadb"] = [[time / 100 for time in block] for block in asked["times"]["meridian"]]
    (tmp_path / "other.json").write_text(json.dumps(other))
    command = [sys.executable, "-m", "meridian_bench", "report", str(run / "samples.json"), str(tmp_path / "other.json")]
    subprocess.run([*command, "--out", str(tmp_path)], cwd=REPOSITORY / "bench", check=True, capture_output=True)
    report = (tmp_path / "REPORT.md").read_text()
    before = (run / "REPORT.md").read_text()
    lines = {name: next(line for line in report.splitlines() if line.startswith(f"| **{name}** ")) for name in ("LV1", "HV2b")}
    assert "| 100 (100 to 100), MariaDB |" in lines["LV1"].replace(".00", "")
    # Of what MariaDB was not asked nothing has changed.
    assert lines["HV2b"] in before
    assert "- MariaDB: only these queries were asked: LV1, cone." in report
    assert "constants drawn from seed 7: Meridian with MariaDB" in report
    assert "Taking turns query by query: Meridian and DuckDB; Meridian and LSDB; Meridian and MariaDB." in report
    loads = [line for line in report.splitlines() if line.startswith("| Object | ")]
    assert [line.split("|")[2].strip() for line in loads] == ["Meridian", "DuckDB", "MariaDB"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda record: record["about"].update(lookups=7), "run 2 differs from the first in lookups: 7 and "),
        (lambda record: record["about"]["machine"].update(memory="1 GiB"), "in machine memory: 1 GiB and "),
        (lambda record: record["about"]["catalogue"]["tables"]["Object"].update(rows=1), "in catalogue tables: "),
        (lambda record: record["versions"].update(meridian="0.0.0"), "run 2 asked version 0.0.0 of meridian, the first "),
        (lambda record: record["about"].update(groups=[["mariadb"], ["duckdb"]]), "had asked already: duckdb."),
        (lambda record: record.update(cones={}), "asked for cones over HTTP, as the first did."),
        (lambda record: record["queries"][0].update(kind="scan"), "asked scans 1 times, the first "),
    ],
)
def test_runs_that_are_unlike_make_no_report(
    run: Path, change: Callable[[dict[str, Any]], None], complaint: str
) -> None:
    """Their figures do not stand beside each other."""
    first = json.loads((run / "samples.json").read_text()) | {"cones": {}}
    other = of_another_peer(first, "LV1", "cone")
    merged([first, other])
    change(other)
    with pytest.raises(Unlike) as found:
        merged([first, other])
    assert complaint in str(found.value)


def answer(rows: int = 40) -> pa.Table:
    """An answer with a key, a double, a column in single precision with NULLs, and text."""
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "objectId": pa.array(rng.permutation(rows), pa.int64()),
            "ra": pa.array(rng.uniform(0, 360, rows)),
            "flux": pa.array([None if i % 5 == 0 else 1e-30 * (i + 1) for i in range(rows)], pa.float32()),
            "band": pa.array(["ugrizy"[i % 6] for i in range(rows)]),
        }
    )


def with_value(table: pa.Table, column: int, row: int, value: object) -> pa.Table:
    values = table.column(column).to_pylist()
    values[row] = value
    return table.set_column(column, table.field(column).name, pa.array(values, table.field(column).type))


def test_the_order_of_rows_and_the_width_of_numbers_do_not_matter() -> None:
    shuffled = answer().take(list(reversed(range(40))))
    widened = shuffled.set_column(0, "id", shuffled.column(0).cast(pa.int32()))
    widened = widened.set_column(2, "f", widened.column(2).cast(pa.float64()))
    assert difference(answer(), widened) is None


@pytest.mark.parametrize(
    ("column", "value"),
    [
        pytest.param(0, 1_000_000, id="key"),
        pytest.param(1, 123.456, id="double"),
        pytest.param(2, 2.5e-30, id="single"),
        pytest.param(2, None, id="a NULL too many"),
        pytest.param(3, "x", id="text"),
    ],
)
def test_a_changed_value_is_caught(column: int, value: object) -> None:
    assert difference(answer(), with_value(answer(), column, 7, value)) is not None


def test_a_changed_digit_is_caught() -> None:
    was = answer().column(1)[7].as_py()
    assert difference(answer(), with_value(answer(), 1, 7, was * (1 + 1e-8))) is not None
    assert difference(answer(), with_value(answer(), 1, 7, was * (1 + 1e-11))) is None
    was = answer().column(2)[7].as_py()
    assert difference(answer(), with_value(answer(), 2, 7, was * (1 + 1e-5))) is not None


def test_what_cancels_has_the_error_of_its_parts() -> None:
    """A mean about the equator has fewer digits than others of its column; a row more or less is still seen."""
    means = pa.table({"chunk": [1, 2], "decl": [61.5, 1.0e-6]})
    added_otherwise = pa.table({"chunk": [1, 2], "decl": [61.5, 1.0e-6 + 1e-11]})
    assert difference(means, added_otherwise) is None
    a_row_less = pa.table({"chunk": [1, 2], "decl": [61.5, 1.0e-6 * (1 - 1 / 500_000) + 1 / 500_000]})
    assert difference(means, a_row_less) == "1 of 2 rows differ"


def test_a_null_for_a_value_and_a_value_for_a_null_are_caught() -> None:
    assert answer().column(2)[5].as_py() is None
    assert difference(answer(), with_value(answer(), 2, 5, 0.0)) is not None


def test_a_dropped_row_is_caught() -> None:
    assert difference(answer(), answer().slice(1)) is not None


def test_a_duplicated_row_is_caught() -> None:
    """Also where another one is dropped for it, so that the counts agree."""
    assert difference(answer(), pa.concat_tables([answer(), answer().slice(3, 1)])) is not None
    assert difference(answer(), pa.concat_tables([answer().slice(1), answer().slice(3, 1)])) is not None


def test_a_dropped_column_is_caught() -> None:
    assert difference(answer(), answer().drop_columns("band")) is not None


def test_floats_that_sorting_puts_in_another_order_are_still_paired() -> None:
    """Two rows whose first floats are equal but for rounding, and whose second ones tell them apart."""
    one = pa.table({"a": [1.0, 1.0 + 1e-12], "b": [5.0, 6.0]})
    other = pa.table({"a": [1.0 + 1e-12, 1.0], "b": [5.0, 6.0]})
    assert difference(one, other) is None
    assert difference(one, pa.table({"a": [1.0 + 1e-12, 1.0], "b": [5.0, 5.0]})) is not None


def test_percentiles_are_of_the_nearest_rank() -> None:
    samples = list(range(1, 101))
    random.Random(1).shuffle(samples)
    assert [percentile(samples, p) for p in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert percentile([7.0], 99) == 7.0


def test_ratios_are_of_rounds_in_which_both_took_part() -> None:
    found = ratio([[1.0], [2.0], [3.0], [9.0]], [[2.0], [2.0], [1.0], []])
    assert found is not None
    assert (found.value, found.low, found.high) == (1.0, 0.5, 3.0)
    assert ratio([[1.0]], [[]]) is None


def setup_of(servers: int) -> Setup:
    """On a machine of 24 GiB."""
    return Setup(Path("/nowhere"), {}, 2, 24 * 2**30, Path("/nowhere/meridian"), servers=servers)


def test_servers_share_what_meridian_has_for_itself() -> None:
    """A third of the machine, halved where two run at the same time."""
    assert setup_of(1).pool == 8 * 2**30
    assert setup_of(2).pool == 4 * 2**30


def test_a_kernel_that_empties_the_page_cache_is_told_of(tmp_path: Path) -> None:
    """After how many seconds, if it does so now."""

    def put(name: str, word: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(word + "\n")

    assert page_cache(tmp_path) == {}
    put("0/state", "on")
    put("0/contexts/0/monitoring_attrs/intervals/aggr_us", "5000000")
    put("0/contexts/0/schemes/0/access_pattern/age/min", "12")
    put("0/contexts/0/schemes/0/action", "stat")
    assert page_cache(tmp_path) == {}
    put("0/contexts/0/schemes/0/action", "pageout")
    assert page_cache(tmp_path) == {
        "page cache": "the kernel drops what was not read for 60 s, though there is room (DAMON)"
    }
    put("0/state", "off")
    assert page_cache(tmp_path) == {}


def test_constants_come_once_and_the_same_from_the_same_seed() -> None:
    sky = Sky(0.0, 20.0, -10.0, 10.0, [(i, 10.0 + i / 100, i / 100) for i in range(50)], 0.125)
    drawn = [Constants(sky, 3, {"near": 1.0}).draw() for _ in range(2)]
    assert drawn[0] == drawn[1]
    source = Constants(sky, 3, {"near": 1.0})
    many = [source.draw() for _ in range(50)]
    for name in ("key", "cut", "mag", "g_flux", "cone_ra", "ra0", "near_ra0", "colour"):
        assert len({one[name] for one in many}) == 50, name


def test_chunk_numbers_are_those_of_the_program(meridian: Meridian, tmp_path: Path) -> None:
    """The peers' chunk column, from the formula, against `meridian sky locate`."""
    rng = np.random.default_rng(2)
    ra, dec = rng.uniform(0, 360, 200), np.degrees(np.arcsin(rng.uniform(-1, 1, 200)))
    lines = "".join(f"{r!r},{d!r}\n" for r, d in zip(ra.tolist(), dec.tolist(), strict=True))
    for stripes in (4, 59, 85):
        said = meridian.must("sky", "locate", "--stripes", stripes, "--sub-stripes", 3, stdin=lines)
        theirs = [int(line.split(",")[2]) for line in said.text.splitlines()]
        assert chunk_ids(ra, dec, stripes).tolist() == theirs
