"""The report's section of cones over HTTP."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from .contenders import CARDS
from .http_cones import OURS, PEER, RADII_CONNECTIONS, RADIUS, STEADY_CONNECTIONS
from .markdown import markdown_table, milliseconds
from .samples import ratio
from .targets import CONE_TARGETS, ConeTarget

Record = dict[str, Any]
TITLES = {name: CARDS[name].title for name in (OURS, PEER)} | {"generator": "the load generator"}
HEADINGS = (
    "load",
    "contender",
    "answers a second",
    "p50, ms",
    "p95, ms",
    "p99, ms",
    "longest, ms",
    "errors",
    "server's processor time an answer, ms",
    "Meridian / peer",
    "target",
    "reached",
)


def cones_of(record: Record) -> Record | None:
    """What was measured, if it was."""
    found: Record | None = record.get("cones")
    return found


def cones_have_failed(record: Record) -> bool:
    """Whether objects differ, or Meridian gave wrong answers or none."""
    cones = cones_of(record)
    if cones is None:
        return False
    wrong = any(run["errors"] for run in cones["runs"] if run["contender"] == OURS)
    return bool(cones["differences"]) or OURS in cones["absent"] or wrong


def cone_differences(record: Record) -> list[Record]:
    """Where objects differ."""
    cones = cones_of(record)
    return cones["differences"] if cones else []


def compared_cones(record: Record) -> int:
    """How many answers were compared."""
    cones = cones_of(record)
    return int(cones["compared"]) if cones else 0


def cone_section(record: Record, is_target_size: bool) -> list[str]:
    """The table and what it needs to be understood; nothing if cones were not asked over HTTP."""
    cones = cones_of(record)
    if cones is None or not cones["runs"]:
        return []
    lines = ["## Cones over HTTP", "", introduction(record["about"], cones), ""]
    rows = []
    for load in sorted({run["load"] for run in cones["runs"]}, key=lambda load: in_order(cones["runs"], load)):
        runs = [run for run in cones["runs"] if run["load"] == load]
        for name in dict.fromkeys([OURS, *(run["contender"] for run in runs)]):
            if own := [run for run in runs if run["contender"] == name]:
                rows.append([*load_cells(own, name), *comparison_cells(load, runs, name, is_target_size)])
    return [*lines, *markdown_table(HEADINGS, rows)]


def in_order(runs: Sequence[Record], load: str) -> tuple[object, ...]:
    """Steady rates first, the highest before others; then by connections, then by radius."""
    run = next(run for run in runs if run["load"] == load)
    return not run["rate"], -(run["rate"] or 0), run["series"], run["connections"], run["radius_arcsec"]


def introduction(about: Record, cones: Record) -> str:
    """What was asked, and of whom."""
    loaders = [run["cpu_seconds"] / run["elapsed_seconds"] for run in cones["runs"] if run["rate"]]
    late = [run["sent_late_ms"]["p50"] for run in cones["runs"] if run["sent_late_ms"]]
    text = (
        f"Cones of {RADIUS:g} arcsec around random positions, {len(cones['columns'])} columns, as VOTable (BINARY2), over"
        f" connections that are kept; the load generator shares the {about['threads']} cores. At a steady rate requests are due"
        f" at random times whether answers come or not ({STEADY_CONNECTIONS} connections), and a latency counts from"
        " when the request was due; otherwise each connection asks again as soon as it has its answer. Figures are medians of"
        " rounds, the longest time of all of them. "
    )
    if loaders:
        text += f"At steady rates the generator took {statistics.median(loaders):.0%} of a core"
        text += f" and sent {milliseconds(statistics.median(late) / 1e3)} ms late (median)." if late else "."
    if peak := cones["peak_memory"]:
        text += f" Meridian's server had at most {peak / 2**30:.2f} GiB in memory."
    if setup := cones["setup"]:
        tried = ", ".join(f"{trial['setup']}: {trial['rate']:,.0f}" for trial in cones["trials"])
        text += f" The peer is a minimal server with {setup}; answers a second of the set-ups that were tried: {tried}."
    return text


def load_title(run: Record) -> str:
    """What a load is."""
    if run["rate"]:
        return f"steady {run['rate']:,.0f} a second"
    if run["series"] == "radius":
        return f"{run['radius_arcsec']:g} arcsec, {RADII_CONNECTIONS} connections"
    return f"{run['connections']} connection" + ("s" if run["connections"] > 1 else "")


def middle(runs: Sequence[Record], percentile: str) -> float | None:
    """The median over rounds of a percentile, in seconds."""
    times = [run["latency_ms"][percentile] / 1e3 for run in runs if run["latency_ms"]]
    return statistics.median(times) if times else None


def load_cells(runs: Sequence[Record], name: str) -> list[str]:
    """A contender's figures under one load."""
    times = [middle(runs, percentile) for percentile in ("p50", "p95", "p99")]
    longest = [run["latency_ms"]["max"] / 1e3 for run in runs if run["latency_ms"]]
    errors, unsent = sum(run["errors"] for run in runs), sum(run["never_sent"] for run in runs)
    wrong = f"{errors:,}" + (f", and {unsent:,} never sent" if unsent else "")
    return [
        f"**{load_title(runs[0])}**",
        TITLES[name],
        f"{statistics.median(run['achieved_rate'] for run in runs):,.0f}",
        *("–" if time is None else milliseconds(time) for time in times),
        milliseconds(max(longest)) if longest else "–",
        f"**{wrong}**" if errors or unsent else wrong,
        f"{statistics.median(run['server_ms'] for run in runs):.2f}",
    ]


def comparison_cells(load: str, runs: Sequence[Record], name: str, is_target_size: bool) -> list[str]:
    """On Meridian's line: its time over the peer's (of medians at a steady rate, of an answer otherwise), and the target."""
    if name != OURS:
        return ["", "", ""]
    target = CONE_TARGETS.get(load)
    own = [run for run in runs if run["contender"] == OURS]
    kept = "" if target is None else _reached(target, own) if is_target_size else "not at this size"
    return [_ratio(runs), "" if target is None else str(target), kept]


def _ratio(runs: Sequence[Record]) -> str:
    rounds: dict[str, dict[int, list[float]]] = {}
    for run in runs:
        time = run["latency_ms"] and (run["latency_ms"]["p50"] if run["rate"] else 1 / run["achieved_rate"])
        rounds.setdefault(run["contender"], {})[run["round"]] = [time] if time else []
    theirs = next((times for name, times in rounds.items() if name != OURS), {})
    ours = rounds.get(OURS, {})
    one = ratio([ours[at] for at in sorted(ours)], [theirs.get(at, []) for at in sorted(ours)])
    return f"{one.value:.2f} ({one.low:.2f} to {one.high:.2f})" if one else ""


def _reached(target: ConeTarget, runs: Sequence[Record]) -> str:
    """Whether the medians of the rounds keep within a target, without an error."""
    kept = not any(run["errors"] or run["never_sent"] for run in runs)
    for percentile, most in (("p50", target.p50), ("p99", target.p99)):
        time = middle(runs, percentile)
        kept = kept and (most is None or (time is not None and time <= most))
    rate = statistics.median(run["achieved_rate"] for run in runs)
    kept = kept and (target.rate is None or rate >= target.rate)
    return "yes" if kept else "no"


def cone_trouble(record: Record) -> list[str]:
    """Differences in bold, then errors and absences."""
    cones = cones_of(record)
    if cones is None:
        return []
    lines = [f"- **Cones over HTTP: answers differ: {one['found']}.** {one['where']}" for one in cones["differences"]]
    told = set()
    for run in cones["runs"]:
        for complaint in run["complaints"]:
            if (run["contender"], complaint) not in told:
                told.add((run["contender"], complaint))
                lines.append(f"- Cones over HTTP, {load_title(run)}: {TITLES[run['contender']]}: {complaint}")
    for name, why in cones["absent"].items():
        lines.append(f"- Cones over HTTP: {TITLES[name]} is absent or fell out: {why}")
    return lines

