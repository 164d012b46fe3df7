"""DuckDB in the worker's process: objects sorted into fine cells of the sky, sources by object and time."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from ..catalogue import TableFiles
from ..chunker import chunk_expression
from .base import Contender

# As its manual recommends for range queries: sorted, so that the minima and maxima of row groups exclude most of them.
CELLS = "floor({dec} * 4), floor({ra} * 4), "


class DuckDB(Contender):
    """An analytic database in the client's process. Each table has a file of its own, so that bytes can be told."""

    connection: duckdb.DuckDBPyConnection | None = None

    def version(self) -> str:
        return str(duckdb.__version__)

    def load(self, table: TableFiles) -> int | None:
        self.home.mkdir(parents=True, exist_ok=True)
        connection = duckdb.connect(str(self.home / f"{table.name}.db"), config={"threads": self.setup.threads})
        connection.execute("SET preserve_insertion_order = false")
        chunk = ""
        if table.name == "Object" and self.setup.stripes:
            number = chunk_expression(table.ra, table.dec, self.setup.stripes, "[{values}][({at})::INTEGER]")
            chunk = f", ({number})::INTEGER AS chunkId"
        order = ("" if table.director else CELLS.format(dec=table.dec, ra=table.ra)) + ", ".join(table.order)
        connection.execute(
            f"CREATE TABLE {table.name} AS SELECT *{chunk} FROM read_parquet({table.files!r}) "
            f"ORDER BY {order}"
        )
        connection.execute("CHECKPOINT")
        connection.close()
        return None

    def bytes_on_disk(self) -> dict[str, int]:
        return {file.stem: file.stat().st_size for file in self.home.glob("*.db")}

    def start(self) -> None:
        self.connection = duckdb.connect(config={"threads": self.setup.threads})
        for name in self.setup.tables:
            self.connection.execute(f"ATTACH '{self.home / name}.db' AS {name}_file (READ_ONLY)")
            self.connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM {name}_file.{name}")
        self.connection.execute("SELECT 1").fetchall()

    def execute(self, text: str) -> object:
        assert self.connection is not None
        return self.connection.execute(text).to_arrow_table()

    def to_arrow(self, answer: object) -> pa.Table:
        assert isinstance(answer, pa.Table)
        return answer

    def stop(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
