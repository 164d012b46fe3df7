"""`python3 -m testbed generate` asks generated statements; `python3 -m testbed coverage` counts the hand-written ones."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

from meridian_cli import Meridian
from testbed import sky
from testbed.cases import catalogue, expressions, lsst, values
from testbed.differences import KNOWN_TYPES
from testbed.generated import ask_generated
from testbed.mariadb import MariaDB
from testbed.sides import Asker, Sides

REPOSITORY = Path(__file__).resolve().parents[2]
REFERENCE = REPOSITORY / "docs" / "sql.md"
BEGIN, END = "<!-- testbed: begin -->", "<!-- testbed: end -->"


def coverage() -> str:
    """The numbers of hand-written statements by theme, and the known differences, as docs/sql.md has them."""
    themes = {**expressions.THEMES, **values.THEMES, **catalogue.THEMES, "LSST's PT1.1": lsst.PT11, "LSST's PT1.2": lsst.PT12}
    lines = ["| theme | statements |", "|---|---|"]
    lines += [f"| {theme} | {len(queries)} |" for theme, queries in themes.items()]
    lines += [f"| all | {sum(map(len, themes.values()))} |", "", "Known and wanted differences, all of them in types:", ""]
    lines += ["| Meridian | MariaDB | why |", "|---|---|---|"]
    lines += [f"| {ours} | {theirs} | {reason} |" for (ours, theirs), reason in KNOWN_TYPES.items()]
    return "\n".join(lines)


def write_coverage(check: bool) -> int:
    """Puts the table into docs/sql.md; with `check` only says whether it is there."""
    text = REFERENCE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = f"{before}{BEGIN}\n{coverage()}\n{END}{after}"
    if check:
        return 0 if wanted == text else 1
    REFERENCE.write_text(wanted)
    return 0


def generate(seed: int, count: int) -> int:
    """Asks generated statements; the status is 1 if an answer differs."""
    meridian = Meridian(Path(os.environ.get("MERIDIAN_BIN", REPOSITORY / "target" / "debug" / "meridian")).resolve())
    with tempfile.TemporaryDirectory(prefix="testbed_") as name:
        directory = Path(name)
        tables = sky.make_tables()
        data = sky.load(meridian, directory, tables)
        mariadb = MariaDB(directory)
        mariadb.make_database(sky.DATABASE, list(tables.values()), sky.INDEXES)
        sides = Sides(Asker(meridian, data, sky.DATABASE), mariadb, sky.DATABASE)
        outcome = ask_generated(sides, seed, count)
        sides.asker.close()
        mariadb.stop()
    print(f"Seed {seed}.\n{outcome.report()}")
    return 1 if outcome.different else 0


def main() -> int:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(prog="python3 -m testbed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    generating = commands.add_parser("generate", help="ask both databases generated statements")
    generating.add_argument("--count", type=int, default=10_000)
    generating.add_argument("--seed", type=int, default=None, help="by default a new one")
    covering = commands.add_parser("coverage", help="write the table of docs/sql.md")
    covering.add_argument("--check", action="store_true", help="only say whether it is up to date")
    arguments = parser.parse_args()
    if arguments.command == "coverage":
        return write_coverage(arguments.check)
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    return generate(seed, arguments.count)


if __name__ == "__main__":
    sys.exit(main())
