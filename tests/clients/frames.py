"""What SQLAlchemy's reflection, pandas and ibis see of a server, for test_more_clients.py: a line of JSON for each theme."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable

import ibis
import pandas
import sqlalchemy
from sqlalchemy.schema import CreateTable
from values import write

PORT = json.loads(sys.argv[1])["port"]
ENGINE = sqlalchemy.create_engine(f"mysql+pymysql://tester:secret@127.0.0.1:{PORT}/sky?charset=utf8mb4")


def inspected() -> object:
    inspector = sqlalchemy.inspect(ENGINE)
    columns = inspector.get_columns("Extremes")
    return {
        "schemas": inspector.get_schema_names(),
        "tables": inspector.get_table_names(),
        "views": inspector.get_view_names(),
        "types": [[column["name"], str(column["type"].compile(ENGINE.dialect)), column["nullable"]] for column in columns],
        "key": inspector.get_pk_constraint("Object")["constrained_columns"],
        "of all": sorted(name for _, name in inspector.get_multi_columns()),
        "nothing": [
            *inspector.get_indexes("Object"),
            *inspector.get_foreign_keys("Source"),
            *inspector.get_unique_constraints("Object"),
            *inspector.get_check_constraints("Object"),
        ],
        "has": [inspector.has_table("Object"), inspector.has_table("nosuch"), inspector.has_table("Object", schema="sky")],
    }


def reflected() -> object:
    everything = sqlalchemy.MetaData()
    everything.reflect(ENGINE)
    table = sqlalchemy.Table("Extremes", sqlalchemy.MetaData(), autoload_with=ENGINE)
    query = sqlalchemy.select(table.c.id, table.c.ubig, table.c.txt).where(table.c.big > 1, table.c.flag).order_by(table.c.id)
    with ENGINE.connect() as connection:
        found = [[write(value) for value in row] for row in connection.execute(query)]
    return {"tables": sorted(everything.tables), "found": found, "made": str(CreateTable(table).compile(ENGINE)).count("UNSIGNED")}


def frame(read: pandas.DataFrame) -> object:
    return {name: [None if pandas.isna(value) else write(value) for value in column] for name, column in read.items()}


COLUMNS = ["id", "big", "d", "at", "txt"]


def pandas_query() -> object:
    query = sqlalchemy.text(f"SELECT {', '.join(COLUMNS)} FROM Extremes WHERE id <> :without ORDER BY id")
    return frame(pandas.read_sql(query, ENGINE, params={"without": 6}, dtype={"big": "Int64"}))


def pandas_table() -> object:
    read = pandas.read_sql_table("Object", ENGINE, columns=["objectId", "ra_PS"]).sort_values("objectId")
    return {"count": len(read), "types": [str(kind) for kind in read.dtypes], "first": write(int(read["objectId"].iloc[0]))}


def pandas_chunks() -> object:
    with ENGINE.connect().execution_options(stream_results=True) as connection:
        return [len(chunk) for chunk in pandas.read_sql("SELECT objectId FROM Object", connection, chunksize=500)]


def ibis_themes() -> list[tuple[str, Callable[[], object]]]:
    connection = ibis.mysql.connect(host="127.0.0.1", port=PORT, user="tester", password="secret", database="sky")
    extremes, objects, sources = connection.table("Extremes"), connection.table("Object"), connection.table("Source")

    def names() -> object:
        return {"tables": connection.list_tables(), "databases": connection.list_databases(), "database": connection.current_database}

    def grouped() -> object:
        positive = objects.filter(objects.decl_PS > 0)
        counted = positive.group_by(is_even=positive.objectId % 2 == 0).agg(n=positive.count()).order_by("is_even")
        return [int(count) for count in counted.execute()["n"]]

    def joined() -> object:
        return int(objects.join(sources, objects.objectId == sources.objectId).count().execute())

    def expressions() -> object:
        columns = extremes.order_by("id").select("id", year=extremes["at"].year(), upper=extremes.txt.upper(), row=ibis.row_number())
        return [[write(value) for value in row] for row in columns.filter(columns.id < 4).execute().itertuples(index=False)]

    return [
        ("ibis names", names),
        ("ibis schema", lambda: [[name, str(kind)] for name, kind in extremes.schema().items()]),
        ("ibis values", lambda: frame(extremes.filter(extremes.id != 6).order_by("id").select(COLUMNS).execute())),
        ("ibis statement", lambda: [str(kind) for kind in connection.sql("SELECT objectId, ra_PS FROM Object").schema().values()]),
        ("ibis grouped", grouped),
        ("ibis joined", joined),
        ("ibis expressions", expressions),
        ("ibis arrow", lambda: objects.select("objectId").to_pyarrow().num_rows),
    ]


def main() -> None:
    warnings.simplefilter("ignore")
    themes: list[tuple[str, Callable[[], object]]] = [
        (look.__name__.replace("_", " "), look) for look in (inspected, reflected, pandas_query, pandas_table, pandas_chunks)
    ]
    for theme, look in themes + ibis_themes():
        try:
            line = {"theme": theme, "saw": look()}
        except Exception as error:  # noqa: BLE001
            line = {"theme": theme, "failed": repr(error)}
        print(json.dumps(line))


main()
