"""What joining neighbours costs, against density, radius, rows in a sub-chunk and selectivity: writes NEIGHBOURS.md.

The experiments of LSST's prototypes on the rows of a partition (0.5 K to 25 K) and on predicates that 2 % and 20 % of
the rows meet, on Meridian alone. Catalogues are made, loaded with several layouts, and asked in turns. The layouts of a
catalogue have to count the same pairs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.dataset

from . import catalogue as catalogues
from .catalogue import Catalogue
from .contenders.base import Setup
from .contenders.meridian import Meridian
from .machine import describe, memory_bytes
from .markdown import markdown_table, milliseconds

BENCH = Path(__file__).resolve().parent.parent
# Objects in a catalogue and rounds that count, by size.
OBJECTS = {"tiny": 1_000, "small": 100_000, "standard": 1_000_000}
ROUNDS = {"tiny": 1, "small": 3, "standard": 5}
# Objects in a square degree: thinner than Gaia's average, that of LSST's Object table, and its deepest fields.
DENSITIES = (5_000, 50_000, 200_000)
LAYOUT_DENSITY = 50_000
# Degrees: an arcsecond, half an arcminute and more, SHV1's.
RADII = (1.0 / 3600.0, 0.01, 0.02, 0.1)
LAYOUT_RADII = (0.02, 0.1)
# Conditions on both rows are computed for each pair: up to this radius alone, where there are not billions.
WIDEST_FOR_PAIRS = 0.02
# Stripes of LSST's own partitioning; sub-stripes give the rows of a sub-chunk.
STRIPES = 85
ROWS_IN_SUB_CHUNK = (500, 1_000, 2_000, 5_000, 10_000, 15_000, 25_000)
SHARES = (0.20, 0.02)
SAMPLED_PAIRS = 200_000
SAMPLE_SEED = 7
MAGNITUDE = "scisql_fluxToAbMag({row}.rFlux_PS)"


@dataclass(frozen=True)
class Layout:
    """How a catalogue is cut; None: as `meridian load` chooses."""

    density: int
    sub_stripes: int | None

    def name(self) -> str:
        """For directories."""
        return f"density_{self.density}" + (f"_sub_stripes_{self.sub_stripes}" if self.sub_stripes else "")

    def load_options(self) -> list[str]:
        """For `meridian load`."""
        return ["--stripes", str(STRIPES), "--sub-stripes", str(self.sub_stripes)] if self.sub_stripes else []

    def rows_in_sub_chunk(self) -> float:
        """What a sub-chunk of equal sides holds near the equator."""
        assert self.sub_stripes is not None
        return float(self.density * (180.0 / STRIPES / self.sub_stripes) ** 2)


@dataclass(frozen=True)
class Condition:
    """What is asked of pairs besides their separation."""

    title: str
    text: str
    # It has to be computed for each pair.
    of_pairs: bool = False


@dataclass
class Outcome:
    """One query in one layout: times in seconds, and what was counted each time."""

    seconds: list[float] = field(default_factory=list)
    pairs: list[int] = field(default_factory=list)

    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)


def layouts(density: int) -> list[Layout]:
    """From few rows in a sub-chunk to many, each number of sub-stripes once."""
    height = 180.0 / STRIPES
    found = [max(1, round(height / (rows / density) ** 0.5)) for rows in ROWS_IN_SUB_CHUNK]
    return [Layout(density, sub_stripes) for sub_stripes in sorted(set(found), reverse=True)]


def conditions(catalogue: Catalogue) -> list[Condition]:
    """None; on one row of a pair; on both: each met by as many as the shares say, as a sample has it."""
    rows = pyarrow.dataset.dataset(catalogue.tables["Object"].files).to_table(columns=["rFlux_PS"])
    fluxes = rows.column(0).drop_null().to_numpy().astype(np.float64)
    rng = np.random.default_rng(SAMPLE_SEED)
    magnitudes = -2.5 * np.log10(fluxes)
    apart = np.abs(rng.choice(magnitudes, SAMPLED_PAIRS) - rng.choice(magnitudes, SAMPLED_PAIRS))
    found = [Condition("none", "")]
    for share in SHARES:
        least = np.quantile(fluxes, 1 - share)
        found.append(Condition(f"{share:.0%} of rows", f" AND a.rFlux_PS > {least:e}"))
    for share in SHARES:
        difference = f"abs({MAGNITUDE.format(row='a')} - {MAGNITUDE.format(row='b')})"
        found.append(Condition(f"{share:.0%} of pairs", f" AND {difference} < {np.quantile(apart, share):.6f}", True))
    return found


def asked_within(radius: float, known: Sequence[Condition]) -> list[Condition]:
    """The conditions that are tried at a radius in degrees."""
    return [condition for condition in known if radius <= WIDEST_FOR_PAIRS or not condition.of_pairs]


def query(radius: float, condition: Condition) -> str:
    """The count of ordered pairs within a radius in degrees."""
    separation = "scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS)"
    return f"SELECT count(*) AS n FROM Object a, Object b WHERE {separation} < {radius!r}{condition.text}"


class Databases:
    """Meridian with each layout of some catalogues, ready to be asked."""

    def __init__(self, work: Path, program: Path, threads: int) -> None:
        self.work = work
        self.program = program
        self.threads = threads
        self.open: dict[Layout, Meridian] = {}

    def load(self, layout: Layout, catalogue: Catalogue) -> None:
        """Loads a catalogue and starts a process on it."""
        home = self.work / layout.name() / "meridian"
        tables = {"Object": catalogue.tables["Object"]}
        meridian = Meridian(Setup(home, tables, self.threads, memory_bytes(), self.program))
        meridian.load_options = (*layout.load_options(), "--replace")
        meridian.load(tables["Object"])
        meridian.start()
        self.open[layout] = meridian

    def execute(self, texts: Sequence[str], rounds: int) -> dict[Layout, dict[str, Outcome]]:
        """Asks every database each text in turns; the first round does not count."""
        found = {layout: {text: Outcome() for text in texts} for layout in self.open}
        order = list(self.open)
        for text in texts:
            print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
            for turn in range(rounds + 1):
                for layout in order[turn % len(order) :] + order[: turn % len(order)]:
                    start = time.perf_counter()
                    answer = self.open[layout].execute(text)
                    seconds = time.perf_counter() - start
                    outcome = found[layout][text]
                    outcome.pairs.append(self.open[layout].to_arrow(answer).column(0)[0].as_py())
                    outcome.seconds += [seconds] if turn else []
        return found

    def close(self) -> None:
        """Ends the processes."""
        for meridian in self.open.values():
            meridian.stop()
        self.open.clear()


def disagreements(found: dict[Layout, dict[str, Outcome]]) -> list[str]:
    """Queries that layouts of one catalogue, or rounds, answered differently."""
    counted: dict[tuple[int, str], set[int]] = {}
    for layout, outcomes in found.items():
        for text, outcome in outcomes.items():
            counted.setdefault((layout.density, text), set()).update(outcome.pairs)
    return [
        f"- **Counts differ: {sorted(counts)} at {density:,} objects in a square degree.** `{text}`"
        for (density, text), counts in counted.items()
        if len(counts) > 1
    ]


def measured(seconds: float, pairs: int, rows: int) -> list[str]:
    """Cells of a time and what it is for each pair and each row."""
    each = f"{seconds / pairs * 1e9:.2f}" if pairs else ""
    return [f"{pairs:,}", milliseconds(seconds), each, f"{seconds / rows * 1e9:,.0f}"]


def density_table(found: dict[Layout, dict[str, Outcome]], rows: int) -> list[str]:
    """One line a density and radius."""
    lines = []
    for layout, outcomes in found.items():
        for radius in RADII:
            outcome = outcomes[query(radius, Condition("none", ""))]
            pairs = outcome.pairs[0]
            place = [f"{layout.density:,}", f"{radius:.6g}", f"{pairs / rows:,.1f}"]
            lines.append([*place, *measured(outcome.median(), pairs, rows)])
    headings = ["objects in a square degree", "radius, degrees", "pairs of a row"]
    return markdown_table([*headings, "pairs", "median, ms", "ns a pair", "ns a row"], lines)


def layout_table(found: dict[Layout, dict[str, Outcome]], radius: float, asked: Sequence[Condition]) -> list[str]:
    """One line a layout, one column a condition."""
    lines = []
    for layout, outcomes in found.items():
        cells = [f"{layout.rows_in_sub_chunk():,.0f}", str(layout.sub_stripes)]
        for condition in asked:
            outcome = outcomes[query(radius, condition)]
            each = outcome.median() / max(1, outcome.pairs[0]) * 1e9
            cells.append(f"{milliseconds(outcome.median())} ({each:.2f})")
        lines.append(cells)
    first = next(iter(found.values()))
    counted = [f"{first[query(radius, condition)].pairs[0]:,}" for condition in asked]
    lines.append(["pairs", "", *counted])
    titles = [condition.title for condition in asked]
    return markdown_table(["rows in a sub-chunk", "sub-stripes", *titles], lines)


def report(about: list[str], tables: Iterator[str], wrong: list[str]) -> str:
    """The whole page."""
    lines = ["# What neighbours cost", "", "Written by `make bench-neighbours`; see [README.md](README.md).", "", *about, ""]
    if wrong:
        lines += [*wrong, ""]
    return "\n".join([*lines, *tables]).rstrip() + "\n"


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="bench/neighbours", description="Measure what joining neighbours costs.")
    parser.add_argument("--size", choices=OBJECTS, default="small")
    parser.add_argument("--meridian", type=Path, required=True, help="the program")
    parser.add_argument("--work", type=Path, required=True, help="directory for the catalogues and the databases")
    parser.add_argument("--out", type=Path, default=BENCH, help="directory for NEIGHBOURS.md")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: all")
    return parser.parse_args()


def made(work: Path, program: Path, density: int, objects: int) -> Catalogue:
    """A catalogue of that many objects in a square degree."""
    return catalogues.prepare(work / f"catalogue_{density}", program, objects, 0, 1, True, density=density)


def run(options: argparse.Namespace) -> int:
    """Measures and writes; the exit status is 1 if counts differ."""
    work, program = options.work.resolve(), options.meridian.resolve()
    work.mkdir(parents=True, exist_ok=True)
    objects, rounds = OBJECTS[options.size], ROUNDS[options.size]
    databases = Databases(work, program, options.threads)
    try:
        for density in DENSITIES:
            databases.load(Layout(density, None), made(work, program, density, objects))
        by_density = databases.execute([query(radius, Condition("none", "")) for radius in RADII], rounds)
        databases.close()
        catalogue = made(work, program, LAYOUT_DENSITY, objects)
        for layout in layouts(LAYOUT_DENSITY):
            databases.load(layout, catalogue)
        known = conditions(catalogue)
        texts = [query(radius, one) for radius in LAYOUT_RADII for one in asked_within(radius, known)]
        by_layout = databases.execute(texts, rounds)
    finally:
        databases.close()
    wrong = disagreements(by_density) + disagreements(by_layout)
    machine = describe(work)
    about = [
        f"Size `{options.size}`, {time.strftime('%Y-%m-%d')}, {machine['processor']}, {machine['memory']},"
        f" {options.threads} threads. {objects:,} objects in each catalogue, a tenth of them in clumps; medians"
        f" of {rounds} after one that does not count, the layouts in turns. Pairs are ordered, and every row is its own neighbour.",
    ]

    def tables() -> Iterator[str]:
        yield from ["## Density and radius", "", "All pairs of a catalogue, cut as `meridian load` chooses.", ""]
        yield from density_table(by_density, objects)
        yield from ["## Rows in a sub-chunk, and conditions", ""]
        yield f"{LAYOUT_DENSITY:,} objects in a square degree, {STRIPES} stripes. Conditions: on the flux of one row of a"
        yield "pair, met by a share of the rows; on the difference of the two magnitudes, met by a share of the pairs."
        yield "Milliseconds, and nanoseconds a counted pair in brackets."
        yield ""
        for radius in LAYOUT_RADII:
            yield from [f"### Within {radius} degree", "", *layout_table(by_layout, radius, asked_within(radius, known))]

    options.out.mkdir(parents=True, exist_ok=True)
    page = options.out / "NEIGHBOURS.md"
    page.write_text(report(about, tables(), wrong), encoding="utf-8")
    print(f"{page} is written", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(run(arguments()))
