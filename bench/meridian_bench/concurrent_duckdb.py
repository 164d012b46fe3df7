"""DuckDB for the benchmark of concurrent queries: reads lists of statements, runs each list at once, tells the time and the results.

    python -m meridian_bench.concurrent_duckdb FILE THREADS PARQUET...

A line on standard input is a list of statements in JSON; a line on standard output is [seconds, [rows of each]].
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import duckdb


def main() -> None:
    """Loads the sources once and executes what it is sent."""
    path, threads, *files = sys.argv[1:]
    connection = duckdb.connect(path, config={"threads": int(threads)})
    tables = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    if ("Source",) not in tables:
        connection.execute(f"CREATE TABLE Source AS SELECT * FROM read_parquet({files!r}) ORDER BY objectId, taiMidPoint")
    print(json.dumps(duckdb.__version__), flush=True)
    for line in sys.stdin:
        statements = json.loads(line)
        cursors = [connection.cursor() for _ in statements]
        with ThreadPoolExecutor(len(statements)) as pool:
            begun = time.perf_counter()
            running = [pool.submit(lambda c=c, s=s: c.execute(s).fetchall()) for c, s in zip(cursors, statements, strict=True)]
            rows = [future.result() for future in running]
            seconds = time.perf_counter() - begun
        print(json.dumps([seconds, rows]), flush=True)


if __name__ == "__main__":
    main()
