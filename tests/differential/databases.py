"""Random databases: their tables, what is awkward in them, and how both engines get them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import table_files
from differential import values
from differential.sky import SKY, Place, random_places, separation
from differential.writing import FILES, Places
from meridian_cli import Meridian
from oracle import connect
from synthetic import TableData

FEW, MANY = 40, 400


@dataclass(frozen=True)
class Field:
    """A column: its kind, the role of constants that it is compared with, and the columns that have values in common with it."""

    name: str
    role: str
    declared: str
    domain: str | None = None
    is_unique: bool = False

    @property
    def kind(self) -> str:
        """What its values are."""
        return "bool" if self.role == "bool" else values.KIND_OF_ROLE[self.role]


@dataclass(frozen=True)
class TableShape:
    """A table: its place, its columns and the options with which it is loaded."""

    database: str
    name: str
    fields: tuple[Field, ...]
    options: dict[str, object] = field(default_factory=dict)
    position: tuple[str, str] | None = None
    # How many of the last columns the parts of the first half lack.
    late: int = 0

    @property
    def is_file(self) -> bool:
        """Whether it is a file that statements name, and not loaded."""
        return self.database == FILES

    @property
    def is_partitioned(self) -> bool:
        """Whether its rows are spread over chunks."""
        return not self.is_file and self.options.get("kind") != "replicated"

    @property
    def has_text_key(self) -> bool:
        """Whether Meridian gives it a column more: the numbers of the texts that are its key. `*` has it there alone."""
        return self.is_partitioned and any(one.domain == "label" for one in self.fields)

    @property
    def query(self) -> str | None:
        """What a view is made of, as both engines read it; none of a table."""
        return str(self.options["query"]) if "query" in self.options else None

    @property
    def read(self) -> list[str]:
        """The tables of its database that a view reads."""
        return str(self.options.get("of", "")).split(",")


@dataclass(frozen=True)
class TableRows:
    """A table and its rows."""

    shape: TableShape
    rows: pa.Table


@dataclass(frozen=True)
class World:
    """The tables of some databases, each loaded in so many parts. Columns that a part lacks are NULL in its rows. So many threads has each
    server that is asked: a plan for one has no exchanges, and limits stand elsewhere in it."""

    tables: tuple[TableRows, ...]
    parts: int = 1
    threads: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", tuple(without_late_values(table, self.parts) for table in self.tables))

    def places(self) -> Places:
        """The position columns of partitioned tables."""
        shapes = [table.shape for table in self.tables]
        return {(s.database, s.name): s.position for s in shapes if s.position and s.is_partitioned}

    def with_rows(self, at: int, rows: pa.Table) -> World:
        """The same with other rows in one table."""
        tables = list(self.tables)
        tables[at] = replace(tables[at], rows=rows)
        return replace(self, tables=tuple(tables))


def without_late_values(table: TableRows, parts: int) -> TableRows:
    """A table with NULL in the columns that the parts of its rows lack."""
    rows, early = table.rows, parts // 2
    if table.shape.late == 0 or early == 0:
        return table
    for at in range(rows.num_columns - table.shape.late, rows.num_columns):
        entries = [None if place % parts < early else value for place, value in enumerate(rows.column(at).to_pylist())]
        rows = rows.set_column(at, rows.schema.field(at), pa.array(entries, rows.schema.field(at).type))
    return replace(table, rows=rows)


ARROW_TYPES = {
    "bigint": pa.int64(), "int": pa.int32(), "smallint": pa.int16(), "double": pa.float64(), "float": pa.float32(), "varchar(60)": pa.string(),
    "datetime": pa.timestamp("us"), "date": pa.date32(), "bit(1)": pa.bool_(),
}  # fmt: skip


class WorldMaker:
    """Makes a world from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def make(self) -> World:
        """The databases `sky` and `deep`, and the files."""
        rng = self.random
        cut = {"stripes": rng.randint(8, 30), "sub_stripes": rng.randint(1, 6), "overlap": rng.choice([0.05, 0.3, 1.0])}
        other = {"stripes": rng.choice([3, 10, 18]), "sub_stripes": rng.randint(1, 4), "overlap": 0.1}
        objects = random_places(rng, rng.randint(FEW, MANY), int(cut["stripes"]))
        keys = self.keys(len(objects), 1)
        references = self.near(objects, rng.randint(FEW, MANY), float(cut["overlap"]))
        reference_keys = self.keys(len(references), 200)
        source = self.source(objects, keys)
        tables = [
            self.object(objects, keys, cut),
            source,
            self.forced(keys),
            self.reference([place for _, place in references], reference_keys),
            self.match([at for at, _ in references], keys, reference_keys),
            self.source_match(source, float(cut["overlap"])),
            self.filter(),
            self.target(objects, keys),
            self.hollow(),
            *self.deep(objects, other),
            *self.files(objects, keys),
            *self.labelled(objects),
        ]
        parts = rng.choice([1, 1, 2, 4, 4])
        if parts > 1 and rng.random() < 0.7:
            tables = [self.with_late_columns(table) for table in tables]
        return World((*tables, *self.views(tables)), parts)

    def with_late_columns(self, table: TableRows) -> TableRows:
        """A table, mostly with some last columns that it gets with its later parts: no more than those that may be NULL and have no part to play."""
        shape, options = table.shape, table.shape.options
        if shape.is_file or options.get("kind") == "match" or not table.rows.num_rows or self.random.random() < 0.2:
            return table
        played = {shape.fields[0].name, *(str(options.get(name)) for name in ("key", "ra", "dec"))}
        last = 0
        for one in reversed(shape.fields):
            if "NOT NULL" in one.declared or one.name in played:
                break
            last += 1
        return replace(table, shape=replace(shape, late=self.random.randint(1, last))) if last else table

    # Columns and keys.

    def keys(self, count: int, first: int) -> list[int]:
        """Keys of a director: small ones, and those at the ends of ranges."""
        found = list(range(first, first + count))
        for at, key in zip(self.random.sample(range(count), min(count, 12)), self.random.sample(values.ODD_KEYS, 12)):
            if key not in found:
                found[at] = key
        return found

    def value(self, role: str) -> object:
        """A value of a column."""
        match role:
            case "bool":
                return self.random.random() < 0.5
            case "text":
                return self.random.choice(values.TEXTS[: self.random.choice([4, len(values.TEXTS)])])
            case "small":
                return self.random.randint(-2, 9)
        return values.plain(self.random, role)

    def column(self, role: str, count: int, nulls: float = 0.15) -> list[object]:
        """A column's values, some of them NULL."""
        return [None if self.random.random() < nulls else self.value(role) for _ in range(count)]

    def table(self, shape: TableShape, columns: dict[str, Iterable[object]]) -> TableRows:
        """A table; columns that are not given are random."""
        count = max((len(list(column)) for column in columns.values()), default=0)
        arrays = []
        for one in shape.fields:
            given = columns.get(one.name)
            nulls = 0.0 if "NOT NULL" in one.declared else 0.15
            entries = list(given) if given is not None else self.column(one.role, count, nulls)
            kind = ARROW_TYPES[one.declared.split(" ")[0]]
            arrays.append(pa.array([parsed(entry, kind) for entry in entries], kind))
        order = list(range(count))
        self.random.shuffle(order)
        rows = pa.table(arrays, names=[one.name for one in shape.fields]).take(pa.array(order, pa.int64()))
        return TableRows(shape, rows)

    def integer(self) -> str:
        """A type for small integers."""
        return self.random.choice(["bigint", "int", "smallint"])

    def real(self) -> str:
        """A type for tame doubles."""
        return self.random.choice(["double", "float"])

    # Tables.

    def object(self, places: list[Place], keys: list[int], cut: dict[str, object]) -> TableRows:
        """The director."""
        fields = (
            Field("objectId", "key", "bigint NOT NULL", "object", True), Field("ra", "ra", "double NOT NULL"),
            Field("decl", "dec", "double NOT NULL"), Field("nObs", "small", self.integer(), "small"),
            Field("flags", "small", f"{self.integer()} NOT NULL", "small"), Field("mag", "tame", self.real()),
            Field("flux", "wild", "double"), Field("big", "big", "bigint"), Field("name", "text", "varchar(60)", "name"),
            Field("seen", "time", "datetime"), Field("night", "date", "date"), Field("good", "bool", "bit(1)"),
        )  # fmt: skip
        options = {"kind": "director", "key": "objectId", "ra": "ra", "dec": "decl", **cut}
        shape = TableShape("sky", "Object", fields, options, ("ra", "decl"))
        return self.table(shape, {"objectId": keys, "ra": [p.ra for p in places], "decl": [p.dec for p in places]})

    def source(self, places: list[Place], keys: list[int]) -> TableRows:
        """A child with positions: orphans, NULL keys and NULL positions among its rows."""
        rng, rows = self.random, []
        for number in range(rng.randint(FEW, 2 * MANY)):
            at = rng.randrange(len(keys))
            key = rng.choices([keys[at], None, rng.choice([7001, 7002, 7003, -7001])], [80, 8, 12])[0]
            place = places[at].moved(rng, 0.3) if rng.random() < 0.9 else None
            rows.append((number - 20, key, place and place.ra, place and place.dec))
        ids, objects, ras, decs = zip(*rows)
        fields = (
            Field("sourceId", "key", "bigint NOT NULL", "source", True), Field("objectId", "key", "bigint", "object"), Field("ra", "ra", "double"),
            Field("decl", "dec", "double"), Field("filterId", "small", self.integer(), "small"), Field("psf", "tame", self.real()),
            Field("name", "text", "varchar(60)", "name"), Field("seen", "time", "datetime"),
        )  # fmt: skip
        options = {"kind": "child", "key": "objectId", "director": "Object", "ra": "ra", "dec": "decl"}
        shape = TableShape("sky", "Source", fields, options, ("ra", "decl"))
        return self.table(shape, {"sourceId": ids, "objectId": objects, "ra": ras, "decl": decs})

    def forced(self, keys: list[int]) -> TableRows:
        """A child without positions."""
        rng = self.random
        count = rng.randint(FEW, MANY)
        objects = [rng.choices([rng.choice(keys), None, 7001, 7009], [85, 5, 5, 5])[0] for _ in range(count)]
        fields = (
            Field("forcedId", "key", "bigint NOT NULL", None, True), Field("objectId", "key", "bigint", "object"),
            Field("filterId", "small", f"{self.integer()} NOT NULL", "small"), Field("good", "bool", "bit(1)"), Field("value", "wild", "double"),
        )  # fmt: skip
        options = {"kind": "child", "key": "objectId", "director": "Object"}
        return self.table(TableShape("sky", "Forced", fields, options), {"forcedId": range(count), "objectId": objects})

    def near(self, objects: list[Place], count: int, overlap: float) -> list[tuple[int | None, Place]]:
        """Places, most of them near an object, whose number is with them."""
        rng, found = self.random, []
        elsewhere = random_places(rng, count, 12)
        for place in elsewhere:
            at = rng.randrange(len(objects)) if rng.random() < 0.8 else None
            found.append((at, place if at is None else objects[at].moved(rng, overlap / 4)))
        return found

    def reference(self, places: list[Place], keys: list[int]) -> TableRows:
        """The other director of the same database."""
        fields = (
            Field("refId", "key", "bigint NOT NULL", "reference", True), Field("ra", "ra", "double NOT NULL"), Field("decl", "dec", "double NOT NULL"),
            Field("isStar", "small", self.integer(), "small"), Field("rMag", "tame", self.real()), Field("name", "text", "varchar(60)", "name"),
        )  # fmt: skip
        options = {"kind": "director", "key": "refId", "ra": "ra", "dec": "decl"}
        shape = TableShape("sky", "RefObject", fields, options, ("ra", "decl"))
        return self.table(shape, {"refId": keys, "ra": [p.ra for p in places], "decl": [p.dec for p in places]})

    def match(self, near: list[int | None], keys: list[int], references: list[int]) -> TableRows:
        """Pairs of the two directors' keys, some with an end that is unknown or NULL, some twice."""
        rng, pairs = self.random, []
        for reference, at in zip(references, near):
            if at is not None:
                pairs += [(reference, keys[at])] * rng.choice([0, 1, 1, 1, 2])
                if rng.random() < 0.1:
                    pairs.append((rng.choice([9001, 9002, None]), keys[at]))
                if rng.random() < 0.1:
                    pairs.append((reference, rng.choice([7001, 7008, None])))
        pairs += [(None, None), (9001, 7001), (9001, None), (None, 7001)]
        left, right = zip(*pairs)
        fields = (
            Field("pairId", "key", "bigint NOT NULL", None, True), Field("refId", "key", "bigint", "reference"), Field("objectId", "key", "bigint", "object"),
            Field("score", "tame", self.real()), Field("filterId", "small", self.integer(), "small"),
        )  # fmt: skip
        options = {"kind": "match", "director": "RefObject,Object", "key": "refId,objectId"}
        shape = TableShape("sky", "RefMatch", fields, options)
        return self.table(shape, {"pairId": range(len(pairs)), "refId": left, "objectId": right})

    def source_match(self, source: TableRows, overlap: float) -> TableRows:
        """Pairs of a child's rows by their own keys, not wider than the overlap; some with an end that is unknown or NULL."""
        rng, pairs = self.random, []
        rows = source.rows.sort_by("objectId").to_pylist()
        place = {row["sourceId"]: row["ra"] is not None and Place(row["ra"], row["decl"]) for row in rows}
        keys = [row["sourceId"] for row in rows]
        for one, other in [*zip(keys, keys[1:]), *((rng.choice(keys), rng.choice(keys)) for _ in range(20))]:
            if place[one] and place[other] and separation(place[one], place[other]) > 0.99 * overlap:
                continue
            pairs += [(one, other)] * rng.choice([0, 1, 1, 2])
            if rng.random() < 0.05:
                pairs += [(one, rng.choice([9101, None])), (rng.choice([9101, None]), other)]
        pairs += [(9101, 9102), (None, None)]
        left, right = zip(*pairs)
        fields = (
            Field("linkId", "key", "bigint NOT NULL", None, True), Field("sourceId", "key", "bigint", "source"),
            Field("otherId", "key", "bigint", "source"), Field("score", "tame", self.real()),
        )  # fmt: skip
        options = {"kind": "match", "director": "Source,Source", "key": "sourceId,otherId"}
        return self.table(TableShape("sky", "SourceMatch", fields, options), {"linkId": range(len(pairs)), "sourceId": left, "otherId": right})

    def filter(self) -> TableRows:
        """A small replicated table."""
        fields = (
            Field("filterId", "small", f"{self.integer()} NOT NULL", "small", True), Field("filterName", "text", "varchar(60)", "name"),
            Field("clam", "tame", self.real()),
        )  # fmt: skip
        return self.table(TableShape("sky", "Filter", fields, {"kind": "replicated"}), {"filterId": range(-1, 6)})

    def target(self, objects: list[Place], keys: list[int]) -> TableRows:
        """A larger replicated table, with positions and with keys of objects."""
        rng = self.random
        count = rng.randint(FEW // 2, MANY // 2)
        places = [rng.choice(objects).moved(rng, 0.5) if rng.random() < 0.9 else None for _ in range(count)]
        fields = (
            Field("targetId", "key", "bigint NOT NULL", None, True), Field("objectId", "key", "bigint", "object"), Field("ra", "ra", "double"),
            Field("dec", "dec", "double"), Field("nObs", "small", self.integer(), "small"), Field("name", "text", "varchar(60)", "name"),
            Field("seen", "time", "datetime"), Field("good", "bool", "bit(1)"),
        )  # fmt: skip
        columns: dict[str, Iterable[object]] = {
            "targetId": range(count), "objectId": [rng.choice([*keys[:60], None, 7001]) for _ in range(count)],
            "ra": [place and place.ra for place in places], "dec": [place and place.dec for place in places],
        }  # fmt: skip
        return self.table(TableShape("sky", "Target", fields, {"kind": "replicated"}, ("ra", "dec")), columns)

    def hollow(self) -> TableRows:
        """A replicated table without rows."""
        fields = (Field("hollowId", "key", "bigint", None, True), Field("objectId", "key", "bigint", "object"), Field("filterId", "small", "int", "small"))
        return self.table(TableShape("sky", "Hollow", fields, {"kind": "replicated"}), {})

    def deep(self, objects: list[Place], cut: dict[str, object]) -> list[TableRows]:
        """A database of its own cut: a director and its child."""
        rng = self.random
        count = rng.randint(FEW, MANY)
        places = [rng.choice(objects).moved(rng, 0.05) if rng.random() < 0.7 else place for place in random_places(rng, count, int(str(cut["stripes"])))]
        keys = self.keys(count, 1)
        fields = (
            Field("starId", "key", "bigint NOT NULL", "star", True), Field("ra", "ra", "double NOT NULL"), Field("dec", "dec", "double NOT NULL"),
            Field("objectId", "key", "bigint", "object"), Field("mag", "tame", self.real()), Field("name", "text", "varchar(60)", "name"),
        )  # fmt: skip
        options = {"kind": "director", "key": "starId", "ra": "ra", "dec": "dec", **cut}
        star = self.table(
            TableShape("deep", "Star", fields, options, ("ra", "dec")),
            {"starId": keys, "ra": [p.ra for p in places], "dec": [p.dec for p in places]},
        )
        epochs = rng.randint(FEW, MANY)
        fields = (
            Field("epochId", "key", "bigint NOT NULL", None, True), Field("starId", "key", "bigint NOT NULL", "star"),
            Field("nObs", "small", self.integer(), "small"), Field("value", "tame", self.real()),
        )  # fmt: skip
        child = {"kind": "child", "key": "starId", "director": "Star"}
        chosen = [rng.choice([*keys, 7001]) for _ in range(epochs)]
        return [star, self.table(TableShape("deep", "Epoch", fields, child), {"epochId": range(epochs), "starId": chosen})]

    def labelled(self, objects: list[Place]) -> list[TableRows]:
        """A director whose key is a text, and its child, with orphans and NULLs."""
        rng = self.random
        labels = [*values.TEXTS, *(f"J{n:06d}" for n in range(rng.randint(FEW, MANY)))]
        places = [rng.choice(objects).moved(rng, 0.3) for _ in labels]
        fields = (
            Field("label", "text", "varchar(60) NOT NULL", "label", True), Field("ra", "ra", "double NOT NULL"), Field("decl", "dec", "double NOT NULL"),
            Field("mag", "tame", self.real()), Field("nObs", "small", self.integer(), "small"),
        )  # fmt: skip
        options = {"kind": "director", "key": "label", "ra": "ra", "dec": "decl"}
        named = self.table(
            TableShape("sky", "Named", fields, options, ("ra", "decl")),
            {"label": labels, "ra": [p.ra for p in places], "decl": [p.dec for p in places]},
        )
        count = rng.randint(FEW, MANY)
        of = [rng.choices([rng.choice(labels), None, "nobody", "Nobody"], [80, 8, 6, 6])[0] for _ in range(count)]
        fields = (
            Field("noteId", "key", "bigint NOT NULL", None, True), Field("label", "text", "varchar(60)", "label"),
            Field("filterId", "small", self.integer(), "small"), Field("value", "tame", self.real()),
        )  # fmt: skip
        child = {"kind": "child", "key": "label", "director": "Named"}
        return [named, self.table(TableShape("sky", "Note", fields, child), {"noteId": range(count), "label": of})]

    def views(self, tables: list[TableRows]) -> list[TableRows]:
        """Views of tables: in another order of columns and under other names, of some rows, with computed columns, of a join, of a view."""
        known = {(table.shape.database, table.shape.name): {one.name: one for one in table.shape.fields} for table in tables}

        def view(name: str, of: str, query: str, columns: dict[str, str | Field], position: tuple[str, str] | None = None, database: str = "sky") -> TableRows:
            fields = [
                replace(known[database, column.split(".")[0]][column.split(".")[1]], name=named) if isinstance(column, str) else replace(column, name=named)
                for named, column in columns.items()
            ]  # fmt: skip
            unique = [replace(one, is_unique=one.is_unique and "JOIN" not in query) for one in fields]
            known[database, name] = {one.name: one for one in unique}
            shape = TableShape(database, name, tuple(unique), {"kind": "view", "of": of, "query": query}, position)
            return self.table(shape, {})

        small = Field("", "small", "bigint", "small")
        made = [
            view("VObject", "Object", "SELECT name AS title, decl, flags + 1 AS more, ra, objectId, mag * 2 AS twice, nObs FROM sky.Object WHERE flags >= 0 OR good", {
                "title": "Object.name", "decl": "Object.decl", "more": small, "ra": "Object.ra", "objectId": "Object.objectId",
                "twice": Field("", "tame", "double"), "nObs": "Object.nObs",
            }, ("ra", "decl")),
            view("VSource", "Source", "SELECT name AS label, objectId AS ofObject, sourceId, decl, ra, psf, seen FROM sky.Source", {
                "label": "Source.name", "ofObject": "Source.objectId", "sourceId": "Source.sourceId", "decl": "Source.decl", "ra": "Source.ra",
                "psf": "Source.psf", "seen": "Source.seen",
            }, ("ra", "decl")),
            view("VJoined", "Object,Source", "SELECT s.sourceId, o.objectId, o.ra, o.decl, s.psf FROM sky.Object AS o LEFT JOIN sky.Source AS s ON o.objectId = s.objectId", {
                "sourceId": "Source.sourceId", "objectId": "Object.objectId", "ra": "Object.ra", "decl": "Object.decl", "psf": "Source.psf",
            }, ("ra", "decl")),
            view("VCounted", "Source", "SELECT objectId, COUNT(*) AS n, MAX(psf) AS most FROM sky.Source GROUP BY objectId", {
                "objectId": "Source.objectId", "n": small, "most": Field("", "tame", "double"),
            }),
            view("VNested", "VObject", "SELECT objectId AS id, ra, decl, more FROM sky.VObject WHERE more < 7", {
                "id": "VObject.objectId", "ra": "VObject.ra", "decl": "VObject.decl", "more": "VObject.more",
            }, ("ra", "decl")),
        ]  # fmt: skip
        star = {name: f"Star.{name}" for name in ("name", "mag", "dec", "ra", "starId")}
        made.append(view("VStar", "Star", "SELECT name, mag, dec, ra, starId FROM deep.Star WHERE NOT name = 'a' OR name IS NULL", star, ("ra", "dec"), "deep"))
        return made

    def files(self, objects: list[Place], keys: list[int]) -> list[TableRows]:
        """Files that statements name. What a CSV file cannot say, as a text that is NULL, is not in it."""
        rng, made = self.random, []
        for name, text in (("targets.csv", "varchar(60) NOT NULL"), ("extras.parquet", "varchar(60)")):
            count = rng.randint(FEW // 2, FEW * 2)
            places = [rng.choice(objects).moved(rng, 0.3) for _ in range(count)]
            fields = (
                Field("fileId", "key", "bigint NOT NULL", None, True), Field("objectId", "key", "bigint", "object"), Field("ra", "ra", "double NOT NULL"),
                Field("dec", "dec", "double NOT NULL"), Field("filterId", "small", "bigint", "small"), Field("name", "text", text, "name"),
                Field("value", "tame", "double"),
            )  # fmt: skip
            columns: dict[str, Iterable[object]] = {
                "fileId": range(count), "objectId": [rng.choice([*keys, None]) for _ in range(count)],
                "ra": [p.ra for p in places], "dec": [p.dec for p in places], "value": [tenth(rng) for _ in range(count)],
            }  # fmt: skip
            made.append(self.table(TableShape(FILES, name, fields, position=("ra", "dec")), columns))
        return made


def tenth(rng: random.Random) -> float | None:
    """A tame double that is read as a double also where all are whole."""
    return None if rng.random() < 0.1 else rng.randint(-400, 400) / 8 + 0.125


def parsed(value: object, kind: pa.DataType) -> object:
    """A value as Arrow takes it."""
    if isinstance(value, str) and pa.types.is_temporal(kind):
        return pa.scalar(value).cast(kind).as_py()
    return value


def normalised(rows: pa.Table) -> pa.Table:
    """What Meridian keeps of rows: NaN is NULL, -0.0 is 0.0, right ascensions are wrapped by whoever makes them."""
    columns = []
    for column in rows.columns:
        if pa.types.is_floating(column.type):
            entries = [None if v is None or v != v else v + 0.0 for v in column.to_pylist()]
            column = pa.chunked_array([pa.array(entries, pa.float64())])
        elif pa.types.is_integer(column.type):
            column = column.cast(pa.int64())
        columns.append(column)
    return pa.table(columns, names=rows.column_names)


def load_part(meridian: Meridian, directory: Path, table: TableRows, append: bool, new: int = 0) -> None:
    """Loads a table into Meridian, or appends to it, with so many new columns, or puts the file where statements find it."""
    shape = table.shape
    if shape.query is not None:
        meridian.must("view", "create", "--data", directory / "data", "--db", shape.database, "--name", shape.name, shape.query)
        return
    if shape.is_file and shape.name.endswith(".csv"):
        pa.csv.write_csv(table.rows, directory / shape.name)
        return
    path = directory / (shape.name if shape.is_file else f"{shape.database}.{shape.name}.parquet")
    pq.write_table(table.rows, path)
    if shape.is_file:
        return
    if append:
        more: dict[str, object] = {"new_columns": schema_of(table, path, shape.fields[-new:]), "allow_empty": True} if new else {}
        meridian.load(directory / "data", shape.database, shape.name, path, append=True, **more)
        return
    options = shape.options if table.rows.num_rows else {**shape.options, "allow_empty": True}
    meridian.load(directory / "data", shape.database, shape.name, path, schema=schema_of(table, path, shape.fields[: table.rows.num_columns]), **options)


def schema_of(table: TableRows, path: Path, fields: tuple[Field, ...]) -> Path:
    """A schema file of some of a table's columns, beside its rows."""
    declared = TableData(table.shape.name, {one.name: one.declared for one in fields}, table.rows)
    return table_files.write_schema(path.with_suffix(".json"), declared)


def load(meridian: Meridian, directory: Path, world: World) -> Path:
    """Loads all tables into a new data directory, a part of each by turns: keys of children come before their directors' rows. The first half of
    the parts lacks the late columns of a table, which it gets with the next part."""
    lacking = {at: table.shape.late for at, table in enumerate(world.tables) if world.parts > 1}
    tables = [(at, table) for at, table in enumerate(world.tables) if table.shape.query is None]
    for part in range(world.parts):
        for at, table in tables:
            rows = table.rows if table.shape.is_file else table.rows.take(pa.array(range(part, table.rows.num_rows, world.parts), pa.int64()))
            new = lacking.get(at, 0)
            is_late = part >= world.parts // 2 and new > 0
            if part > 0 and (table.shape.is_file or not (rows.num_rows or is_late)):
                continue
            if new and not is_late:
                rows = rows.select(range(rows.num_columns - new))
            if is_late:
                lacking[at] = 0
            load_part(meridian, directory, replace(table, rows=rows), part > 0, new if is_late else 0)
    for table in world.tables:
        if table.shape.query is not None:
            load_part(meridian, directory, table, append=False)
    return directory / "data"


def duckdb_of(world: World) -> duckdb.DuckDBPyConnection:
    """A DuckDB with the same tables and the functions of the sky."""
    connection = connect()
    connection.execute("SET enable_progress_bar = false; SET memory_limit = '1GB'")
    connection.execute(SKY)
    for database in {table.shape.database for table in world.tables}:
        connection.execute(f"CREATE SCHEMA {database}")
    for table in world.tables:
        if table.shape.query is not None:
            connection.execute(f'CREATE VIEW {table.shape.database}."{table.shape.name}" AS {table.shape.query}')
            continue
        connection.register("rows_to_add", normalised(table.rows))
        connection.execute(f'CREATE TABLE {table.shape.database}."{table.shape.name}" AS SELECT * FROM rows_to_add')
        connection.unregister("rows_to_add")
    return connection
