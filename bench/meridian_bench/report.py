"""Writes REPORT.md and its plots from the record of a run."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .contenders import CARDS
from .install import BENCH
from .markdown import markdown_table, milliseconds
from .plots import bars, distributions
from .query import JOIN, LOOKUP, SCAN
from .report_cones import compared_cones, cone_differences, cone_section, cone_trouble, cones_have_failed
from .samples import Ratio, flat, percentile, ratio
from .sizes import SIZES
from .targets import OBJECT_BYTES, TARGETS, Target

Record = dict[str, Any]
OURS = "meridian"


def has_failed(record: Record) -> bool:
    """Whether answers differ, or Meridian fell out on the way."""
    differ = any(asked["differences"] for asked in record["queries"])
    return OURS in record["absent"] or differ or cones_have_failed(record)


def verdict(record: Record) -> str:
    """The report's first sentence."""
    if any(asked["differences"] for asked in record["queries"]) or cone_differences(record):
        return "**Answers differ: see below.**"
    if OURS in record["absent"]:
        return "**Meridian fell out on the way: see below.**"
    compared = sum(asked["compared"] for asked in record["queries"]) + compared_cones(record)
    return f"All {compared:,} answers that were compared are the same."


def contenders(record: Record) -> list[str]:
    """All that were loaded or asked, Meridian first."""
    seen = {name for asked in record["queries"] for name in asked["times"]}
    seen |= {load["contender"] for load in record["loads"]}
    return [name for name in CARDS if name in seen]


class Row:
    """One query of one kind (warm or cold), over all groups in which it was asked."""

    def __init__(self, askings: list[Record], reasons: dict[str, str]) -> None:
        self.askings = askings
        self.reasons = reasons
        self.name: str = askings[0]["name"]
        self.title: str = askings[0]["title"]

    def times(self, name: str) -> list[float]:
        """All of a contender's times, of all groups."""
        return [time for asking in self.askings for time in flat(asking["times"].get(name, []))]

    def best(self) -> tuple[str, Ratio] | None:
        """The peer that does best beside Meridian in its own group, and Meridian's time over its."""
        found: list[tuple[str, Ratio]] = []
        for asking in self.askings:
            ours = asking["times"].get(OURS, [])
            for name, theirs in asking["times"].items():
                if name != OURS and (one := ratio(ours, theirs)):
                    found.append((name, one))
        return max(found, key=lambda pair: pair[1].value, default=None)

    def complaint(self, name: str) -> str:
        """What a contender said when it refused."""
        return next((a["complaints"][name] for a in self.askings if name in a["complaints"]), "")

    def left_out(self, name: str) -> str:
        """Why a peer was not asked though it could have been."""
        return self.reasons.get(name, "")

    def differences(self) -> list[Record]:
        """Where answers differ."""
        return [one for asking in self.askings for one in asking["differences"]]


def rows_of(record: Record, kind: str, cold: bool) -> list[Row]:
    """The queries in their order."""
    found: dict[str, list[Record]] = {}
    for asking in record["queries"]:
        if asking["cold"] == cold and (cold or asking["kind"] == kind):
            found.setdefault(asking["name"], []).append(asking)
    return [Row(askings, {} if cold else record["left_out"].get(name, {})) for name, askings in found.items()]


def lookup_cell(times: Sequence[float], asked: int) -> str:
    """Percentiles, and of how many where not all were asked."""
    figures = " / ".join(milliseconds(percentile(times, p)) for p in (50, 95, 99))
    return figures if len(times) >= asked else f"{figures} (of {len(times):,})"


def scan_cell(times: Sequence[float], _asked: int) -> str:
    """Median and minimum."""
    return f"{milliseconds(statistics.median(times))} ({milliseconds(min(times))})"


def ratio_cell(row: Row) -> str:
    """Meridian's time over the best peer's."""
    best = row.best()
    if best is None:
        return ""
    name, one = best
    return f"{one.value:.2f} ({one.low:.2f} to {one.high:.2f}), {CARDS[name].title}"


def target_cells(record: Record, row: Row) -> tuple[str, str]:
    """The target, and whether it is reached; at other sizes than its own a target says nothing."""
    target = TARGETS.get(record["about"]["size"], {}).get(row.name) if has_full_size(record) else None
    shown = target or TARGETS["standard"].get(row.name)
    if shown is None or row.askings[0]["cold"]:
        return "", ""
    text = f"≤ {milliseconds(shown.median)}" + (f", p99 ≤ {milliseconds(shown.p99)}" if shown.p99 else "")
    times = row.times(OURS)
    if target is None or not times:
        return text, "not at this size" if target is None else "no answer"
    return text, reached(target, times)


def has_full_size(record: Record) -> bool:
    """Whether as many objects were loaded as the size says: fewer may have been given by hand."""
    about = record["about"]
    rows: int = about["catalogue"]["tables"]["Object"]["rows"]
    return rows >= SIZES[about["size"]].objects


def reached(target: Target, times: Sequence[float]) -> str:
    """Whether the times keep within a target."""
    kept = statistics.median(times) <= target.median
    kept = kept and (target.p99 is None or percentile(times, 99) <= target.p99)
    return ("yes" if kept else "no") + (f" ({target.note})" if target.note else "")


def contender_cell(row: Row, name: str, cell: Any, asked: int) -> str:
    """A contender's times, or why there are none."""
    times = row.times(name)
    if times:
        text = cell(times, asked)
    elif row.complaint(name):
        text = "refused"
    else:
        reason = row.left_out(name)
        text = f"not asked: {reason}" if reason else "–"
    wrong = any(one["contender"] == name for one in row.differences())
    return f"**{text}, answer differs**" if wrong else text


def from_to(counts: set[int]) -> str:
    """The least and the greatest of some counts."""
    return " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)})) if counts else ""


def rows_cell(row: Row) -> list[str]:
    """How many rows the answers have."""
    return [from_to({asking["rows"] for asking in row.askings if asking["rows"] is not None})]


def pairs_cells(row: Row) -> list[str]:
    """How many pairs a spatial join counted, and Meridian's time for each."""
    counts = {asking["pairs"] for asking in row.askings if asking["pairs"] is not None}
    times = row.times(OURS)
    each = f"{statistics.median(times) / max(counts) * 1e9:.2f}" if times and counts and max(counts) else ""
    return [from_to(counts), each]


def query_table(record: Record, rows: Sequence[Row], cell: Any) -> list[str]:
    """One line a query, one column a contender."""
    known = contenders(record)
    names = [name for name in known if any(row.times(name) or row.complaint(name) or row.left_out(name) for row in rows)]
    are_joins = bool(rows) and all(row.askings[0]["kind"] == JOIN for row in rows)
    count_cells, headings = (pairs_cells, ["pairs counted", "Meridian, ns each"]) if are_joins else (rows_cell, ["rows"])
    lines = []
    for row in rows:
        cells = [contender_cell(row, name, cell, record["about"]["lookups"]) for name in names]
        query = f"**{row.name}** {row.title}"
        lines.append([query, *count_cells(row), *cells, ratio_cell(row), *target_cells(record, row)])
    titles = [CARDS[name].title for name in names]
    return markdown_table(["query", *headings, *titles, "Meridian / best peer", "target", "reached"], lines)


SECTIONS = (
    ("Lookups", LOOKUP, lookup_cell, "p50 / p95 / p99."),
    ("Scans and joins", SCAN, scan_cell, "Median (minimum)."),
    ("Spatial joins", JOIN, scan_cell, "Median (minimum). Pairs are ordered, and every row is its own neighbour."),
)


def trouble(record: Record) -> list[str]:
    """Differing answers in bold, then refusals and absences."""
    lines = cone_trouble(record)
    for asking in record["queries"]:
        for one in asking["differences"]:
            pair = f"{CARDS[one['contender']].title} against {CARDS[one['against']].title}"
            lines.append(f"- **{asking['name']}: answers differ, {pair}: {one['found']}.** `{one['text']}`")
    told = set()
    for asking in record["queries"]:
        for name, text in asking["complaints"].items():
            if (asking["name"], name) not in told:
                told.add((asking["name"], name))
                lines.append(f"- {asking['name']}: {CARDS[name].title} refused: {text}")
    for name, why in record["absent"].items():
        lines.append(f"- {CARDS[name].title} is absent or fell out: {why}")
    if skipped := record["about"]["skipped"]:
        lines.append(f"- Not asked to take part: {', '.join(CARDS[name].title for name in skipped)}.")
    loaded = {load["contender"] for load in record["loads"]} | set(record["absent"])
    if chosen := record["about"]["chosen"]:
        lines.append(f"- Only these queries were asked: {', '.join(chosen)}.")
    for part in record["about"].get("parts", []):
        if part["chosen"]:
            titles = " and ".join(CARDS[name].title for group in part["groups"] for name in group)
            lines.append(f"- {titles}: only these queries were asked: {', '.join(part['chosen'])}.")
    wanted = [name for group in record["about"]["groups"] for name in group]
    if unfinished := [name for name in wanted if name not in loaded]:
        titles = ", ".join(CARDS[name].title for name in unfinished)
        lines.append(f"- The run was ended before these had taken their turns: {titles}.")
    return lines


def load_section(record: Record) -> list[str]:
    """Seconds, memory and bytes of each load; the ratio to DuckDB's; the target for bytes."""
    seconds = {(load["contender"], load["table"]): statistics.median(load["times"]) for load in record["loads"]}
    rows = []
    for load in sorted(record["loads"], key=lambda load: (load["table"], list(CARDS).index(load["contender"]))):
        duckdb = seconds.get(("duckdb", load["table"]))
        median = seconds[load["contender"], load["table"]]
        against = f"{median / duckdb:.2f}" if duckdb else ""
        times = f"{median:,.1f}"
        if len(load["times"]) > 1:
            times += f" ({', '.join(f'{time:,.1f}' for time in load['times'])})"
        size = f"{load['bytes'] / 1e9:.3f}" if load["bytes"] else "in memory"
        peak = f"{load['peak'] / 2**30:.2f}"
        rows.append([load["table"], CARDS[load["contender"]].title, times, against, peak, size])
    headings = ["table", "contender", "load, s", "of DuckDB's", "peak memory, GiB", "on disk, GB"]
    lines = [*markdown_table(headings, rows)]
    lines.append("Target: not slower than DuckDB's sorted load of the same files" + _kept(seconds) + ".")
    if record["about"]["size"] == "standard" and has_full_size(record):
        ours = [load["bytes"] for load in record["loads"] if load["contender"] == OURS and load["table"] == "Object"]
        if ours:
            word = "reached" if ours[0] <= OBJECT_BYTES else "not reached"
            lines.append(f"Target for Object with its indexes: {OBJECT_BYTES / 1e9:.2f} GB: {word}.")
    return [*lines, ""]


def _kept(seconds: dict[tuple[str, str], float]) -> str:
    pairs = [
        f"{table} {'reached' if mine <= seconds['duckdb', table] else 'not reached'}"
        for (name, table), mine in seconds.items()
        if name == OURS and ("duckdb", table) in seconds
    ]
    return f": {', '.join(pairs)}" if pairs else " (DuckDB did not take part)"


def memory_section(record: Record) -> list[str]:
    """The most memory while asking."""
    rows = [[CARDS[name].title, f"{peak / 2**30:.2f}"] for name, peak in record["memory"].items()]
    return markdown_table(["contender", "GiB"], rows)


def machine_section(record: Record) -> list[str]:
    """Machine, versions and data set."""
    about = record["about"]
    lines = [f"- {name}: {value}" for name, value in about["machine"].items()]
    versions = ", ".join(f"{CARDS[name].title} {version}" for name, version in record["versions"].items())
    lines += [
        f"- versions: {versions}",
        f"- threads for each contender: {about['threads']}",
        f"- date: {about['date']}",
    ]
    for part in about.get("parts", []):
        titles = ", ".join(CARDS[name].title for group in part["groups"] for name in group)
        lines.append(f"- in a run of its own, {part['date']}, constants drawn from seed {part['seed']}: Meridian with {titles}")
    for name, table in about["catalogue"]["tables"].items():
        columns = len(table["columns"])
        lines.append(f"- {name}: {table['rows']:,} rows of {columns} columns, {table['bytes'] / 1e9:.2f} GB of Parquet")
    lines.append(f"- catalogue: {about['catalogue']['made_by']}; constants drawn from seed {about['seed']}")
    return [*lines, ""]


def method_section(record: Record) -> list[str]:
    """How it was measured, in sentences."""
    about = record["about"]
    groups = "; ".join(" and ".join(CARDS[name].title for name in ["meridian", *group]) for group in about["groups"])
    fetches = [f"- {CARDS[name].title}: {CARDS[name].fetches}" for name in contenders(record)]
    turns, block = f"Taking turns query by query: {groups}.", about["block"]
    if about.get("apart"):
        turns = (
            f"Taking turns round by round: {groups}. One of them runs at a time, so that it has the machine's memory to"
            " itself: it is started, asked all queries of a round and ended before the next one starts."
        )
        block = -(-about["lookups"] // about["rounds"])
    return [
        "Every contender holds the rows of the same Parquet files, set up as `bench/README.md` describes, and runs in a"
        f" process of its own. {turns} A time is from handing over the text to"
        " having the whole answer in the client's memory:",
        "",
        *fetches,
        "",
        f"Lookups were asked {about['lookups']:,} times in blocks of {block}, scans {about['rounds']} times,"
        " each time with other constants, the same for all contenders of a round; each round was begun by another"
        " contender. Warm is: every file of the contenders was read once before, each database was asked for the"
        " mean of every column, so that it keeps of its tables what it will, and first came what does not count: a"
        " round of each scan, and of lookups a quarter as many in turns, 500 or five seconds of them at most; but a"
        " block in which a contender spent all its time does count. A contender that had spent"
        f" {about['budget']:.0f} s on a query sat out the rest of it, and tools that start a process or a plan for"
        " each cone were asked five of each block. The ratio is the median of the ratios of single rounds (for"
        " lookups: of the medians of blocks), with the least and the greatest of them in brackets.",
        "",
        "Where a load has several times, the contenders loaded in turns, each time everything anew, and the first figure"
        " is their median.",
        "",
        f"Cold, {about['cold_rounds']} times each: the contender's process started anew with none of its files in the"
        " page cache, and one query asked after it had answered `SELECT 1`. The program itself may be in the cache.",
        "",
        "Memory of PostgreSQL is the sum over its processes, shared pages counted once, as seen twice a second while"
        " loading and between queries; that of the others is the kernel's own peak, and includes Python where the"
        " database lives in the client.",
        "",
        "Each answer was compared with that of the group's first peer as a multiset of rows: integers exactly, doubles"
        " to 1e-9, single-precision columns to 1e-6 (MariaDB: 6e-6, since it sends six digits). Sums of values that cancel"
        " may also differ by 1e-12 of the greatest value in their column.",
        "",
    ]


def write_plots(record: Record, directory: Path) -> list[str]:
    """Writes the plots; gives the lines that show them."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.svg"):
        old.unlink()
    shown = []

    def keep(name: str, svg: str, text: str) -> None:
        (directory / f"{name}.svg").write_text(svg, encoding="utf-8")
        shown.append(f"![{text}]({directory.name}/{name}.svg)\n")

    for name, title, kind in (("scans", "Scans", SCAN), ("spatial_joins", "Spatial joins", JOIN)):
        rows = rows_of(record, kind, cold=False)
        medians = {row.name: {n: statistics.median(row.times(n)) for n in CARDS if row.times(n)} for row in rows}
        if medians:
            text = f"Bars: median times of {title.lower()} by contender"
            keep(name, bars(f"{title}: median seconds", medians), text)
    for row in rows_of(record, LOOKUP, cold=False):
        times = {name: row.times(name) for name in CARDS if row.times(name)}
        if times:
            title = f"{row.name}: {row.title}"
            keep(f"latency_{row.name}", distributions(title, times), f"Latencies of {row.name} by contender")
    loads: dict[str, dict[str, float]] = {}
    sizes: dict[str, dict[str, float]] = {}
    for load in record["loads"]:
        loads.setdefault(load["table"], {})[load["contender"]] = statistics.median(load["times"])
        if load["bytes"]:
            sizes.setdefault(load["table"], {})[load["contender"]] = load["bytes"] / 1e9
    keep("load", bars("Load: seconds", loads), "Bars: seconds of loading by contender")
    keep("bytes", bars("On disk: gigabytes", sizes), "Bars: gigabytes on disk by contender")
    return shown


def readme_link(out: Path) -> str:
    """The way from a report to what explains it; a report outside the project names it only."""
    if not out.resolve().is_relative_to(BENCH):
        return "`bench/README.md`"
    return f"[README.md]({os.path.relpath(BENCH / 'README.md', out.resolve())})"


def write_report(record: Record, out: Path) -> Path:
    """Writes REPORT.md and, beside it, figures/*.svg."""
    out.mkdir(parents=True, exist_ok=True)
    about = record["about"]
    lines = [
        "# Benchmark report",
        "",
        f"Size `{about['size']}`, {about['date']}, {about['machine']['processor']}, {about['machine']['memory']}. "
        f"Written by `make bench`; what the rows and the set-ups are is in {readme_link(out)}.",
        "",
        verdict(record),
        "",
        "A ratio below 1 means that Meridian is the faster. Times are in milliseconds.",
        "",
    ]
    for heading, kind, cell, what in SECTIONS:
        if rows := rows_of(record, kind, cold=False):
            lines += [f"## {heading}", "", what, "", *query_table(record, rows, cell)]
    lines += cone_section(record, about["size"] == "standard" and has_full_size(record))
    if cold := rows_of(record, "", cold=True):
        lines += ["## Cold", "", "Median (minimum).", "", *query_table(record, cold, scan_cell)]
    lines += ["## Loading", "", *load_section(record), "## Memory while asking", "", *memory_section(record)]
    if troubles := trouble(record):
        lines += ["## What is missing or wrong", "", *troubles, ""]
    lines += ["## Plots", "", *write_plots(record, out / "figures")]
    lines += [
        "## Machine and data",
        "",
        *machine_section(record),
        "## How it was measured",
        "",
        *method_section(record),
    ]
    report = out / "REPORT.md"
    report.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return report
