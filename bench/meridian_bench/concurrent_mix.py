"""The papers' mix of two HV2, one LV1 and one LV2 stream, and many scans of a table of many small chunks: parts of CONCURRENT.md."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .contenders.base import Setup
from .contenders.meridian import DATABASE, Meridian
from .markdown import markdown_table, milliseconds

# LDM-135: "two HV2, one LV1 and one LV2 stream"; each asks the next statement when it has the result of the last.
HV2_STREAMS = 2
LV1 = "SELECT * FROM Object WHERE objectId = {object}"
LV2 = (
    "SELECT taiMidPoint, scisql_fluxToAbMag(psfFlux) AS mag, scisql_fluxToAbMagSigma(psfFlux, psfFluxErr) AS magErr, ra, decl"
    " FROM Source WHERE objectId = {object}"
)
HV2 = (
    "SELECT objectId, ra_PS, decl_PS, uFlux_PS, gFlux_PS, rFlux_PS, iFlux_PS, zFlux_PS, yFlux_PS FROM Object"
    " WHERE scisql_fluxToAbMag(iFlux_PS) - scisql_fluxToAbMag(zFlux_PS) > {cut}"
)
CUTS = (0.4, 5.0)
MIX_SECONDS = {"tiny": 1.5, "small": 15.0, "standard": 30.0}

# DMTN-048's scans in flight: 2 to 12 over about 8,000 chunks.
FLIGHT = (1, 2, 4, 8, 12)
# Objects over a large part of the sky, and how many in a square degree.
WIDE = {"tiny": (5_000, 1), "small": (200_000, 5), "standard": (4_000_000, 100)}
STRIPES = {"tiny": 45, "small": 40, "standard": 85}
SMALL_SCAN = "SELECT count(*) AS n, avg(decl_PS) AS m FROM Object WHERE gFlux_PS > {flux!r} AND ra_PS < {ra!r}"

Execute = Callable[[Any, str], list[list[Any]]]


@dataclass
class Stream:
    """The seconds that each statement of a stream took, and for how long it asked."""

    name: str
    seconds: list[float]
    lasted: float

    def cells(self) -> list[str]:
        """A row of the table but for what ran beside it."""
        ordered = sorted(self.seconds)
        quantiles = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.99))
        return [self.name, *(milliseconds(it) for it in quantiles), f"{len(ordered) / self.lasted:,.1f}"]


@contextlib.contextmanager
def streaming(server: Any, execute: Execute, name: str, statement: Callable[[], str]) -> Iterator[Stream]:
    """One connection that asks without pause, until the body has ended."""
    found, stop, begun = Stream(name, [], 0.0), threading.Event(), time.perf_counter()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            connection = server.connect()
            while not stop.is_set():
                start = time.perf_counter()
                execute(connection, statement())
                found.seconds.append(time.perf_counter() - start)
            connection.close()
        except BaseException as error:  # noqa: BLE001 - told where the stream is waited for
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
        found.lasted = time.perf_counter() - begun
    if failures:
        raise failures[0]


def mix(server: Any, execute: Execute, objects: Sequence[int], seconds: float, seed: int) -> list[tuple[str, Stream]]:
    """The LV1 and the LV2 stream alone, and beside two HV2 streams; with what ran beside each."""

    def look_up(form: str, rng: random.Random) -> Callable[[], str]:
        return lambda: form.format(object=rng.choice(objects))

    def scan(rng: random.Random) -> Callable[[], str]:
        return lambda: HV2.format(cut=round(rng.uniform(*CUTS), 6))

    found: list[tuple[str, Stream]] = []
    for hv2_streams in (0, HV2_STREAMS):
        with contextlib.ExitStack() as running:
            numbers = iter(range(100))
            streams = [
                running.enter_context(streaming(server, execute, name, statement))
                for name, statement in [
                    ("LV1", look_up(LV1, random.Random(seed + next(numbers)))),
                    ("LV2", look_up(LV2, random.Random(seed + next(numbers)))),
                    *(("HV2", scan(random.Random(seed + next(numbers)))) for _ in range(hv2_streams)),
                ]
            ]
            time.sleep(seconds)
        beside = f"{hv2_streams} HV2" if hv2_streams else "nothing"
        found += [(beside, stream) for stream in streams]
    return found


def mix_section(found: list[tuple[str, Stream]]) -> list[str]:
    """The part of the page about the mix."""
    lines = ["## The papers' mix", ""]
    lines += [
        "One stream of LV1 (an object by its key), one of LV2 (the sources of an object), without and with two streams of HV2 (objects by"
        " the difference of two magnitudes); each asks its next statement when it has the result of the last. LV1 and LV2 must not wait"
        " behind HV2.",
        "",
    ]
    cells = [[stream.cells()[0], beside, *stream.cells()[1:]] for beside, stream in found]
    return lines + markdown_table(["stream", "beside", "p50, ms", "p99, ms", "statements a second"], cells)


def small_chunks(setup: Setup, table: Any, stripes: int | None) -> int:
    """Loads the objects, cut into so many stripes or as the loader chooses, unless a run before this one has; gives the number of chunks."""
    name = f"{table.rows} rows, {stripes or 'usual'} stripes"
    note = setup.home.parent / "made_by.txt"
    if not note.is_file() or note.read_text() != name:
        shutil.rmtree(setup.home, ignore_errors=True)
        loader = Meridian(setup)
        loader.load_options = ("--stripes", str(stripes), "--sub-stripes", "1", "--overlap", "0.001") if stripes else ()
        loader.load(table)
        note.write_text(name)
    listing = [str(setup.program), "tables", "--data", str(setup.home), "--format", "json"]
    done = subprocess.run(listing, capture_output=True, text=True, check=True)
    [chunks] = [line["chunks"] for line in map(json.loads, done.stdout.splitlines()) if line["database"] == DATABASE]
    return int(chunks)


def flight(
    servers: dict[str, Any], rounds: int, bounds: dict[str, tuple[float, float]], seed: int, alike: Callable[[Any, Any], bool]
) -> tuple[dict[int, dict[str, float]], list[str]]:
    """The median seconds of each number of scans at once by each server, in turns, and where results differ. The first round does not count."""
    rng, found, wrong = random.Random(seed), {}, []
    for number in FLIGHT:
        print(f"{time.strftime('%H:%M:%S')} {number} scans of small chunks", file=sys.stderr, flush=True)
        seconds: dict[str, list[float]] = {name: [] for name in servers}
        for turn in range(rounds + 1):
            statements = [
                SMALL_SCAN.format(flux=rng.uniform(*bounds["gFlux_PS"]) * 0.3, ra=rng.uniform(*bounds["ra_PS"])) for _ in range(number)
            ]
            results = {}
            for name, server in servers.items():
                took, results[name] = server.at_once(statements)
                seconds[name] += [took] if turn else []
            first, *others = results.items()
            wrong += [
                f"- **{name} differs from {first[0]}**: `{text}`"
                for name, rows in others
                for text, one, other in zip(statements, first[1], rows, strict=True)
                if not alike(one, other)
            ]
        found[number] = {name: statistics.median(times) for name, times in seconds.items()}
    return found, wrong


def flight_section(found: dict[int, dict[str, float]], chunks: dict[str, int], rows: int) -> list[str]:
    """The part of the page about small chunks."""
    names = list(chunks)
    described = "; ".join(f"*{name}*: {count:,} chunks of {rows // max(1, count):,} rows on average" for name, count in chunks.items())
    lines = ["## Scans of many small chunks", ""]
    lines += [
        f"The same {rows:,} objects cut finely and as the loader chooses, scanned by several statements at once, each over all chunks, in"
        f" milliseconds from the first statement to the last result. {described}.",
        "",
    ]
    cells = [
        [str(number), *(f"{number * chunks[name]:,}" for name in names[:1]), *(milliseconds(times[name]) for name in names)]
        for number, times in found.items()
    ]
    return lines + markdown_table(["scans", "chunk queries", *names], cells)
