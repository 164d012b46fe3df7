"""ClickHouse in the worker's process (`chdb`): MergeTree by cells of the sky, with an index projection by objectId."""

from __future__ import annotations

from pathlib import Path

import chdb
import pyarrow as pa
import pyarrow.parquet as pq
from chdb import session

from ..catalogue import TableFiles
from ..chunker import chunk_expression
from .base import LONGEST_SECONDS, Contender

TYPES = {"int64": "Int64", "int32": "Int32", "int8": "Int8", "double": "Float64", "float": "Float32"}
# Cells of a quarter of a degree, of the MATERIALIZED kind: SELECT * does not show them.
CELLS = "zone Int16 MATERIALIZED floor({dec} * 4), cell Int16 MATERIALIZED floor({ra} * 4)"
# A projection of row numbers by key: what its manual has for finding single rows in another order than the table's.
KEY_INDEX = "PROJECTION by_key (SELECT _part_offset ORDER BY objectId)"


class ClickHouse(Contender):
    """A column store, here as a library."""

    session: session.Session | None = None

    def version(self) -> str:
        return str(chdb.engine_version)

    def load(self, table: TableFiles) -> int | None:
        self.prepare_session()
        assert self.session is not None
        schema = pq.read_schema(table.files[0])
        required = {"objectId", "sourceId", "opticalId", "infraredId", "ra_PS", "decl_PS", "ra", "decl", "taiMidPoint"}
        columns = []
        for field in schema:
            kind = TYPES[str(field.type)]
            columns.append(f"{field.name} {kind if field.name in required else f'Nullable({kind})'}")
        names = ", ".join(schema.names)
        select, order = names, ", ".join(table.order)
        if table.director is None:
            order = f"zone, cell, {order}"
            columns.append(CELLS.format(ra=table.ra, dec=table.dec))
        if table.name == "Object":
            columns.append(KEY_INDEX)
            if self.setup.stripes:
                columns.append("chunkId Int32")
                number = chunk_expression(
                    table.ra, table.dec, self.setup.stripes, "arrayElement([{values}], toInt32({at}))"
                )
                select, names = f"{names}, toInt32({number})", f"{names}, chunkId"
        self._do(f"CREATE TABLE {table.name} ({', '.join(columns)}) ENGINE = MergeTree ORDER BY ({order})")
        files = Path(table.files[0]).parent / "*.parquet"
        self._do(f"INSERT INTO {table.name} ({names}) SELECT {select} FROM file('{files}', Parquet)")
        # One sorted part, as it would be after some hours of merging in the background.
        self._do(f"OPTIMIZE TABLE {table.name} FINAL")
        return None

    def prepare_session(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.session = session.Session(str(self.home))
        self._do("CREATE DATABASE IF NOT EXISTS bench ENGINE = Atomic")
        self._do("USE bench")
        self._do(f"SET max_threads = {self.setup.threads}")

    def _do(self, text: str) -> None:
        assert self.session is not None
        self.session.query(text)

    def bytes_on_disk(self) -> dict[str, int]:
        assert self.session is not None
        text = "SELECT table, sum(bytes_on_disk) FROM system.parts WHERE active AND database = 'bench' GROUP BY table"
        answer = self.to_arrow(self.execute(text))
        return dict(zip(answer.column(0).to_pylist(), answer.column(1).to_pylist(), strict=True))

    def start(self) -> None:
        self.prepare_session()
        self._do(f"SET max_execution_time = {LONGEST_SECONDS}")
        self.execute("SELECT 1")

    def execute(self, text: str) -> object:
        assert self.session is not None
        try:
            answer = self.session.query(text, "ArrowStream").bytes()
        except Exception:
            # A session that has given up on a query may give that query's rows for the next one.
            self.session.close()
            self.start()
            raise
        return pa.ipc.open_stream(pa.py_buffer(answer)).read_all() if answer else pa.table({})

    def to_arrow(self, answer: object) -> pa.Table:
        assert isinstance(answer, pa.Table)
        return answer

    def stop(self) -> None:
        if self.session is not None:
            self.session.close()
            self.session = None
