"""The command line of the benchmark: `bench/run` and `bench/report` call it."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

from . import catalogue as catalogues
from . import match_tables
from .constants import Constants
from .contenders import PEERS
from .http_cones import CONES
from .machine import describe, free_bytes
from .merging import Unlike, merged
from .queries import QUERIES
from .report import has_failed, write_report
from .runner import Plan, Run, log
from .sizes import GROUPS, SIZES, SPARE_BYTES, Size, room_for

BENCH = Path(__file__).resolve().parent.parent


def names(text: str) -> list[str]:
    """A list of peers; `none` and `all` are understood."""
    if text in ("none", ""):
        return []
    chosen = PEERS if text == "all" else text.split(",")
    for name in chosen:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"there is no peer {name}: choose from {', '.join(PEERS)}")
    return list(chosen)


def query_names(text: str) -> list[str]:
    """A list of queries, in whatever case."""
    known = {query.name.lower(): query.name for query in QUERIES} | {CONES: CONES}
    for name in text.lower().split(","):
        if name not in known:
            raise argparse.ArgumentTypeError(f"there is no query {name}: choose from {', '.join(known.values())}")
    return [known[name] for name in text.lower().split(",")]


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="bench/run", description="Measure Meridian beside its peers.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run it and write the report")
    run.add_argument("--size", choices=SIZES, default="small")
    run.add_argument("--peers", type=names, help="separated by commas, or `none` (default: those of the size)")
    run.add_argument("--skip", type=names, default=[], help="peers to leave out")
    run.add_argument("--queries", type=query_names, default=[], help="separated by commas (default: all)")
    run.add_argument("--meridian", type=Path, required=True, help="the program")
    run.add_argument("--load-generator", type=Path, help="the program that asks over HTTP (default: built if it is needed)")
    run.add_argument("--work", type=Path, required=True, help="directory for the catalogue and the databases")
    run.add_argument("--out", type=Path, default=BENCH, help="directory for REPORT.md and its plots")
    run.add_argument("--catalogue", type=Path, help="Parquet files to use: DIR/Object/*.parquet, DIR/Source/*.parquet")
    run.add_argument("--seed", type=int, help="of the constants (default: another one each run)")
    run.add_argument("--data-seed", type=int, default=1, help="of the catalogue")
    run.add_argument("--threads", type=int, default=os.cpu_count(), help="for each contender (default: all)")
    run.add_argument("--objects", type=int, help="instead of the size's own number")
    run.add_argument("--rounds", type=int, help="of scans, instead of the size's own number")
    run.add_argument("--lookups", type=int, help="instead of the size's own number")
    run.add_argument("--together", action="store_true", help="all peers at once, not group by group")
    run.add_argument("--apart", action="store_true", help="one contender in memory at a time, as at the large size")
    run.add_argument("--keep", action="store_true", help="keep the loaded databases, and use those of an earlier run")
    run.add_argument("--no-install", action="store_true", help="use this interpreter's packages for all")
    report = commands.add_parser("report", help="write the report from the raw samples of earlier runs")
    report.add_argument("raw", type=Path, nargs="+", help="samples.json; of several runs, that with all queries first")
    report.add_argument("--out", type=Path, default=BENCH)
    return parser.parse_args()


def groups_of(peers: list[str], size: str, together: bool) -> list[list[str]]:
    """Which peers are loaded and asked at the same time; at the large size each alone, for want of room."""
    if together or not peers:
        return [peers]
    groups = [[name] for name in PEERS] if size == "large" else GROUPS
    chosen = [[name for name in group if name in peers] for group in groups]
    return [group for group in chosen if group]


def prepare_catalogue(options: argparse.Namespace, size: Size) -> catalogues.Catalogue:
    """The Parquet files: given, or made with room left for Meridian."""
    if options.catalogue:
        return catalogues.open_catalogue(options.catalogue, f"given: {options.catalogue.name}")
    directory = options.work / "catalogue"
    columns = 17 if size.epochs else len(catalogues.NINE_COLUMNS)
    needed = room_for("catalogue", size.objects, size.objects * size.epochs, columns)
    needed += room_for("meridian", size.objects, size.objects * size.epochs, columns) + SPARE_BYTES
    if not directory.exists() and free_bytes(options.work) < needed:
        raise SystemExit(
            f"{options.work} has {free_bytes(options.work) / 1e9:.0f} GB free; the catalogue and Meridian alone need "
            f"about {needed / 1e9:.0f} GB. Give another --work or a smaller --size."
        )
    return catalogues.prepare(
        directory, options.meridian, size.objects, size.epochs, options.data_seed, size.epochs == 0
    )


def run(options: argparse.Namespace) -> int:
    """Runs and reports; the exit status is 1 if answers differ."""
    size = SIZES[options.size]
    size = replace(
        size,
        objects=options.objects or size.objects,
        rounds=options.rounds or size.rounds,
        lookups=options.lookups or size.lookups,
    )
    peers = [name for name in (size.peers if options.peers is None else options.peers) if name not in options.skip]
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    options.meridian = Path(shutil.which(options.meridian) or options.meridian).resolve()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**31)
    catalogue = prepare_catalogue(options, size)
    catalogue = match_tables.prepare(options.work / "match", catalogue, size.matched)
    constants = Constants(catalogues.survey(catalogue, random.Random(seed)), seed, size.boxes)
    python = sys.executable if options.no_install else None
    groups = groups_of(peers, options.size, options.together)
    plan = Plan(
        size,
        groups,
        options.work,
        options.meridian,
        options.threads,
        options.keep,
        options.queries,
        python,
        options.load_generator,
        options.size,
        options.apart or size.apart,
    )
    measurement = Run(plan, catalogue, constants)
    started = time.monotonic()
    measurement.record["about"] = {
        "size": options.size,
        "date": time.strftime("%Y-%m-%d"),
        "seed": seed,
        "threads": options.threads,
        "groups": groups,
        "apart": plan.apart,
        "skipped": [name for name in PEERS if name not in peers],
        "chosen": options.queries,
        "machine": describe(options.work),
        "catalogue": catalogue.as_json(),
        "lookups": size.lookups,
        "block": size.block,
        "rounds": size.rounds,
        "cold_rounds": size.cold_rounds,
        "budget": size.budget,
    }
    raw = options.work / "samples.json"
    measurement.everything(raw)
    measurement.record["about"]["minutes"] = (time.monotonic() - started) / 60
    raw.write_text(json.dumps(measurement.record))
    report = write_report(measurement.record, options.out)
    log(f"{report} is written; the samples are in {raw}")
    return 1 if has_failed(measurement.record) else 0


def main() -> int:
    """Does what the command line says."""
    options = arguments()
    if options.command == "report":
        try:
            record = merged([json.loads(raw.read_text()) for raw in options.raw])
        except Unlike as unlike:
            raise SystemExit(f"These runs do not make one report: {unlike}") from None
        except (OSError, ValueError) as error:
            raise SystemExit(f"The samples cannot be read: {error}. They are the samples.json of a run.") from None
        print(write_report(record, options.out))
        return 1 if has_failed(record) else 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
