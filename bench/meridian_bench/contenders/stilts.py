"""STILTS: tables as column-oriented FITS files, a process for each query: `stilts tpipe` or `stilts tmatch2`."""

from __future__ import annotations

import os
import re
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..catalogue import TableFiles
from .base import Refused, Setup
from .tool import Tool, counted

# FITS binary table: format letter and the big-endian type of each column's values.
FITS_TYPES = {
    "int64": ("K", ">i8"),
    "int32": ("J", ">i4"),
    "int8": ("I", ">i2"),
    "double": ("D", ">f8"),
    "float": ("E", ">f4"),
}
BLOCK = 2880


class Stilts(Tool):
    """The command line tool of the Virtual Observatory. It has no index: every cone reads the two position columns."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.most_memory = 0

    def version(self) -> str:
        done = subprocess.run(["stilts", "-version"], capture_output=True, text=True, check=False)
        found = re.search(r"STILTS version ([\w.\-]+)", done.stdout + done.stderr)
        if not found:
            raise Refused("`stilts -version` does not tell a version")
        return found.group(1)

    def load(self, table: TableFiles) -> int | None:
        self.home.mkdir(parents=True, exist_ok=True)
        rows_file = self.home / "rows.fits"
        write_fits(table, str(rows_file))
        command = ["stilts", "tpipe", f"in={rows_file}", "ifmt=fits", f"out={self.home}/{table.name}.colfits"]
        command += ["ofmt=colfits-basic"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        rows_file.unlink()
        if status != 0:
            raise Refused("stilts could not make the column-oriented file")
        return usage.ru_maxrss * 1024

    def bytes_on_disk(self) -> dict[str, int]:
        return {file.stem: file.stat().st_size for file in self.home.glob("*.colfits")}

    def start(self) -> None:
        """There is nothing to open."""

    def cone(self, ra: float, dec: float, radius: float) -> bytes:
        """The rows of a cone, in degrees."""
        table = self.setup.tables["Object"]
        condition = f"skyDistanceDegrees({table.ra}, {table.dec}, {ra}, {dec}) <= {radius}"
        command = ["stilts", "tpipe", f"in={self.home}/Object.colfits", "ifmt=colfits-basic"]
        return self._output([*command, f'cmd=select "{condition}"'])

    def match(self, radius: float) -> pa.Table:
        """The nearest row of Infrared within a radius in degrees of each row of Optical."""
        command = ["stilts", "tmatch2", "matcher=sky", f"params={radius * 3600!r}", "find=best1", "join=1and2"]
        for number, name in ((1, "Optical"), (2, "Infrared")):
            table = self.setup.tables[name]
            command += [f"in{number}={self.home}/{name}.colfits", f"ifmt{number}=colfits-basic"]
            command.append(f"values{number}={table.ra} {table.dec}")
        command += ["progress=none", "ocmd=stats Name NGood Sum", 'ocmd=select Name==\\"Separation\\"']
        answer = pyarrow.csv.read_csv(pa.BufferReader(self._output(command)))
        return counted(answer.column("NGood")[0].as_py(), answer.column("Sum")[0].as_py())

    def _output(self, command: list[str]) -> bytes:
        """What a process writes as CSV."""
        command = [*command, "out=-", "ofmt=csv"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        answer = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        self.most_memory = max(self.most_memory, usage.ru_maxrss * 1024)
        if status != 0:
            raise Refused("stilts failed")
        return answer

    def to_arrow(self, answer: object) -> pa.Table:
        if isinstance(answer, pa.Table):
            return answer
        assert isinstance(answer, bytes)
        schema = pq.read_schema(self.setup.tables["Object"].files[0])
        options = pyarrow.csv.ConvertOptions(column_types=schema, null_values=["", "NaN"])
        return pyarrow.csv.read_csv(pa.BufferReader(answer), convert_options=options)

    def stop(self) -> None:
        pass

    def peak_memory(self) -> int:
        return self.most_memory


def write_fits(table: TableFiles, path: str) -> None:
    """Writes the Parquet files as one FITS binary table, a file at a time in memory. NULL becomes NaN."""
    schema = pq.read_schema(table.files[0])
    row = np.dtype([(field.name, FITS_TYPES[str(field.type)][1]) for field in schema])
    with open(path, "wb") as out:
        out.write(_header([("SIMPLE", "T"), ("BITPIX", 8), ("NAXIS", 0), ("EXTEND", "T")]))
        cards: list[tuple[str, object]] = [("XTENSION", "'BINTABLE'"), ("BITPIX", 8), ("NAXIS", 2)]
        cards += [("NAXIS1", row.itemsize), ("NAXIS2", table.rows), ("PCOUNT", 0), ("GCOUNT", 1)]
        cards.append(("TFIELDS", len(schema)))
        for at, field in enumerate(schema, 1):
            cards += [(f"TTYPE{at}", f"'{field.name:<8}'"), (f"TFORM{at}", f"'{FITS_TYPES[str(field.type)][0]:<8}'")]
        out.write(_header(cards))
        for file in table.files:
            rows = pq.read_table(file)
            block = np.empty(rows.num_rows, row)
            for name in row.names or ():
                block[name] = rows.column(name).to_numpy()
            out.write(block.tobytes())
        out.write(b"\0" * (-out.tell() % BLOCK))


def _header(cards: list[tuple[str, object]]) -> bytes:
    lines = [
        f"{name:<8}= {value!s:>20}" if not str(value).startswith("'") else f"{name:<8}= {value}"
        for name, value in cards
    ]
    text = "".join(f"{line:<80}" for line in [*lines, "END"])
    return text.encode().ljust(-(-len(text) // BLOCK) * BLOCK)
