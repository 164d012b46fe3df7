"""`python3 -m differential` asks random statements of random databases and says which answers are wrong."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

from conftest import binary_path
from differential.cases import OPEN_CASES, all_cases, complaint
from differential.engines import KEEP_FILES, MEMORY, RELEASED, TWICE, WORKERS
from differential.run import Plan, run
from meridian_cli import Meridian


def say(text: str) -> None:
    """Prints at once, also into a pipe."""
    print(text, flush=True)


def ask_cases(meridian: Meridian) -> int:
    """Asks the kept cases; how many are wrong."""
    wrong = 0
    for case in all_cases():
        with tempfile.TemporaryDirectory(prefix="differential_") as name:
            found = complaint(case, meridian, Path(name))
        if found is not None:
            wrong += 1
            say(f"== case {case.name}: {case.story}\n{found}")
    return wrong


def ask_open_cases(meridian: Meridian) -> None:
    """Says which mistakes of `known.py` are repaired."""
    for case in all_cases(OPEN_CASES):
        with tempfile.TemporaryDirectory(prefix="differential_") as name:
            found = complaint(case, meridian, Path(name))
        if found is None:
            say(f"repaired: move cases/open/{case.name}.json to cases/, and take its row out of known.py if no other open case needs it")


def main() -> int:
    """Reads the arguments; the status is 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(prog="python3 -m differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="by default a new one, which is printed")
    parser.add_argument("--count", type=int, default=2_000, help="how many statements Meridian is asked")
    parser.add_argument("--minutes", type=float, default=None, help="end after so many minutes, if --count is not reached before")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worlds at once, each with a server of its own")
    parser.add_argument("--workers", type=int, default=0, help="workers of a cluster of each server; none by default")
    parser.add_argument("--keep-files", default="all", help="bytes of files that a cluster's front end keeps itself, such as 0; all by default")
    parser.add_argument("--memory", default="", help="memory of the server's statements, such as 16M; what cannot spill may fail for want of it then")
    parser.add_argument("--twice", action="store_true", help="ask each statement twice, the second time of the server's result cache")
    parser.add_argument("--released", action="store_true", help="ask as a user to whom the rows of each table are released by a condition, which all meet")
    parser.add_argument("--adql", action="store_true", help="ask all in ADQL, by TAP, and nothing in MySQL's dialect; by default a part is asked in both")
    parser.add_argument("--world", type=int, default=0, help="the number of the first world: goes on where another run of the seed ended")
    parser.add_argument("--statement", default=None, help="ask this statement of the first world alone, by its number")
    parser.add_argument("--per-world", type=int, default=500, help="statements to ask of each world")
    parser.add_argument("--shrink-seconds", type=float, default=40, help="how long a statement is made smaller")
    parser.add_argument("--save", type=Path, default=None, help="a directory for failures as cases")
    parser.add_argument("--open-cases", action="store_true", help="say which of the mistakes that are known are repaired")
    parser.add_argument("--ignore", action="append", default=[], help="a pattern of categories of failures that are only counted")
    arguments = parser.parse_args()
    # The processes that ask a world's statements inherit it.
    os.environ[WORKERS] = str(arguments.workers)
    os.environ[KEEP_FILES] = arguments.keep_files
    os.environ[MEMORY] = arguments.memory
    os.environ[TWICE] = "1" if arguments.twice else ""
    os.environ[RELEASED] = "1" if arguments.released else ""
    binary = binary_path()
    if not binary.is_file():
        parser.error(f"there is no program at {binary}: build it with `cargo build --workspace --bin meridian`, or set MERIDIAN_BIN")
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    say(f"differential: SEED={seed}")
    wrong = ask_cases(Meridian(binary))
    if arguments.open_cases:
        ask_open_cases(Meridian(binary))
    seconds = None if arguments.minutes is None else arguments.minutes * 60
    jobs, count = (1, 10**9) if arguments.statement is not None else (arguments.jobs, arguments.count)
    outcome = run(
        Plan(
            binary, seed, count if arguments.statement is None else arguments.per_world, seconds, jobs, arguments.world, arguments.per_world,
            arguments.shrink_seconds, arguments.save, arguments.statement, tuple(arguments.ignore), arguments.adql,
        ),  # fmt: skip
        say,
    )
    tally = outcome.tally
    say(f"differential: {tally.statements} statements, {tally.in_adql} of them in ADQL, {len(outcome.found)} failures, {wrong} cases wrong; SEED={seed}")
    counted = [
        ("known and not repaired", outcome.known), ("allowed", tally.allowed), ("no answer of DuckDB's", tally.skipped),
        ("failed, not made smaller", outcome.not_shrunk),
    ]  # fmt: skip
    for words, counts in counted:
        for reason, times in counts.most_common():
            say(f"  {words}: {times} times: {reason}")
    return 1 if outcome.found or outcome.not_shrunk or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
