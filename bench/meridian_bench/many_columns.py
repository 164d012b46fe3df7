"""An archive of many columns: how long clients wait for the lists of its tables and columns. Writes COLUMNS.md."""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import subprocess
import time
import urllib.parse
import urllib.request
from datetime import date
from pathlib import Path

from .markdown import markdown_table, milliseconds
from .served import served

BENCH = Path(__file__).resolve().parent.parent
DATABASES = 10
UNITS, UCDS = ("deg", "mag", "nJy", "d", ""), ("pos.eq.ra", "phot.mag;em.opt.r", "phot.flux;em.opt", "time.epoch", "meta.id")


def file_of(directory: Path, columns: int) -> Path:
    """A VOTable of two rows, whose columns have units, UCDs and descriptions."""
    chance = random.Random(5)
    fields = [
        f'<FIELD name="column{at:03}" datatype="double" unit="{UNITS[at % 5]}" ucd="{UCDS[at % 5]}">'
        f"<DESCRIPTION>{' '.join(chance.choices(['flux', 'of', 'the', 'source', 'in', 'band', 'error', 'mean'], k=9))}</DESCRIPTION></FIELD>"
        for at in range(columns)
    ]
    row = f"<TR>{'<TD>1.5</TD>' * columns}</TR>"
    path = directory / "columns.vot"
    path.write_text(
        '<VOTABLE version="1.4" xmlns="http://www.ivoa.net/xml/VOTable/v1.3"><RESOURCE><TABLE>'
        f"{''.join(fields)}<DATA><TABLEDATA>{row}{row}</TABLEDATA></DATA></TABLE></RESOURCE></VOTABLE>"
    )
    return path


def load(program: Path, data: Path, file: Path, tables: int) -> None:
    for at in range(tables):
        command = [program, "load", "--data", data, "--db", f"survey{at % DATABASES}", "--table", f"Table{at:04}", "--kind", "replicated", "--quiet", file]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def query(statement: str) -> str:
    return "/tap/sync?" + urllib.parse.urlencode({"LANG": "ADQL", "QUERY": statement, "RESPONSEFORMAT": "csv"})


def requests(tables: int, columns: int) -> dict[str, tuple[str, int]]:
    """What is requested, and how many lines or tables of the archive the answer has."""
    all_columns = tables * columns
    return {
        "`/tap/tables?detail=min`": ("/tap/tables?detail=min", tables),
        "`/tap/tables`, all columns in XML": ("/tap/tables", tables),
        "`SELECT COUNT(*) FROM TAP_SCHEMA.columns`": (query("SELECT COUNT(*) FROM TAP_SCHEMA.columns WHERE table_name LIKE 'survey%'"), all_columns),
        "`SELECT * FROM TAP_SCHEMA.columns`": (query("SELECT * FROM TAP_SCHEMA.columns WHERE table_name LIKE 'survey%'"), all_columns),
        "`SELECT * FROM TAP_SCHEMA.columns` of one table": (query("SELECT * FROM TAP_SCHEMA.columns WHERE table_name = 'survey3.Table0003'"), columns),
    }


def found(path: str, body: bytes) -> int:
    """How many of the archive's own an answer has."""
    if path.startswith("/tap/tables"):
        return body.count(b"<name>survey") - DATABASES
    lines = body.decode().splitlines()[1:]
    return int(lines[0]) if "COUNT" in path else len(lines)


def measure(address: str, wanted: dict[str, tuple[str, int]], rounds: int) -> dict[str, list[float]]:
    """Seconds until the whole answer is here, in turns; a first round does not count."""
    times: dict[str, list[float]] = {name: [] for name in wanted}
    for turn in range(rounds + 1):
        for name, (path, number) in wanted.items():
            begun = time.perf_counter()
            with urllib.request.urlopen(address + path, timeout=120) as response:
                body = response.read()
            seconds = time.perf_counter() - begun
            assert found(path, body) == number, (name, found(path, body), number)
            if turn > 0:
                times[name].append(seconds)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--meridian", type=Path, required=True, help="the program")
    parser.add_argument("--work", type=Path, required=True, help="a directory for the data, which is emptied")
    parser.add_argument("--out", type=Path, default=BENCH, help="where COLUMNS.md is written")
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=100, help="columns of each")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    program, data = options.meridian.resolve(), options.work / "data"
    load(program, data, file_of(options.work, options.columns), options.tables)
    with served(program, data, "--result-cache", "off") as server:
        times = measure(server.address, requests(options.tables, options.columns), options.rounds)
    rows = [[name, milliseconds(statistics.median(of)), milliseconds(max(of))] for name, of in times.items()]
    page = [
        "# Lists of many columns",
        "",
        "Written by `make bench-columns`; see [README.md](README.md).",
        "",
        f"{date.today()}. {options.tables:,} tables of {options.columns} columns with units, UCDs and descriptions. Milliseconds until the whole answer is there, {options.rounds} rounds in turns.",
        "",
        *markdown_table(["request", "median", "longest"], rows),
    ]
    (options.out / "COLUMNS.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
