"""What each user of the matrix of grants may see, worked out from the grants alone: a model of a few lines, the oracle of `test_grants_matrix`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

ROWS = 40
# By which rows of sky.Night are released.
RELEASED = "MOD(id, 2) = 0"
COLUMNS = ("id", "ra", "dec", "flux")
Row = tuple[float, ...]


@dataclass(frozen=True)
class Table:
    """A table, or a view, and what is in it."""

    database: str
    name: str
    columns: tuple[str, ...] = COLUMNS
    # Whether cones are searched in it, and whether it is a HATS catalogue.
    has_cones: bool = True
    has_hats: bool = False
    # Of a view: the table that it reads.
    reads: str | None = None
    keeps: Callable[[int], bool] = lambda _: True

    @property
    def full(self) -> str:
        return f"{self.database}.{self.name}"

    def value(self, column: str, n: int) -> float:
        # Each table has fluxes of its own: a wrong one tells whose it is.
        return {"id": float(n), "ra": 10 + n / 100, "dec": 20 + n / 200, "flux": float(1000 * (1 + [*TABLES].index(self.full)) + n)}[column]

    def ids(self) -> list[int]:
        return [n for n in range(ROWS) if self.keeps(n)]


TABLES: dict[str, Table] = {}
for _table in (
    Table("sky", "Object", has_hats=True),
    Table("sky", "Night", has_hats=True),
    Table("sky", "Source", ("id", "flux"), has_cones=False),
    Table("sky", "Band", ("id", "flux"), has_cones=False),
    Table("sky", "Bright", reads="sky.Object", keeps=lambda n: n < 10),
    Table("owner", "mine"),
    Table("owner", "published"),
    Table("team", "shared"),
):
    TABLES[_table.full] = _table


@dataclass(frozen=True)
class Grants:
    """What was granted to somebody: databases, tables, or tables with columns as `meridian user grant` takes them."""

    read: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    unreleased: tuple[str, ...] = ()
    is_admin: bool = False
    # What is granted and taken back, and groups that are entered and left, before anything is asked.
    revoked: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


USERS: dict[str, Grants] = {
    "boss": Grants(is_admin=True),
    "nothing": Grants(),
    "whole": Grants(("sky",)),
    "table": Grants(("sky.Object",)),
    "columns": Grants(("sky.Object(id,flux)", "sky.Source(id)")),
    "placed": Grants(("sky.Object(id,ra,dec)", "sky.Night(id,ra,dec)")),
    "keeper": Grants(("sky",), unreleased=("sky.Night",)),
    "viewer": Grants(("sky.Bright(id,flux)",)),
    "owner": Grants(),
    "friend": Grants(("owner.mine",)),
    "reader": Grants(groups=("readers",)),
    "member": Grants(("sky.Band",), groups=("team",)),
    "revoked": Grants(revoked=("sky", "owner.mine")),
    "left": Grants(left=("team", "readers")),
    # May read without the group all that its members may, rows that are not released too: that stays the same when they leave.
    "parted": Grants(("team",), unreleased=("sky.Night",), left=("team",)),
}
GROUPS: dict[str, Grants] = {"readers": Grants(("owner.mine", "sky.Night")), "team": Grants(unreleased=("sky.Night",))}
# Groups that have a database.
WITH_DATABASE = {"team"}
PUBLIC = ("owner.published",)


def covers(grant: str, table: Table) -> set[str]:
    """The columns of a table that a grant of a database, a table or columns gives."""
    name, _, columns = grant.partition("(")
    if name == table.database:
        return set(table.columns)
    if name != table.full:
        return set()
    return set(columns.rstrip(")").split(",")) if columns else set(table.columns)


@dataclass
class Seen:
    """What somebody sees of a table."""

    table: Table
    columns: list[str]
    ids: list[int] = field(default_factory=list)

    def rows(self) -> list[Row]:
        return [tuple(self.table.value(column, n) for column in self.columns) for n in self.ids]


def seen(name: str, table: Table) -> Seen:
    """What a user sees of a table, by whatever protocol."""
    user = USERS[name]
    own = {name, *(set(user.groups) & WITH_DATABASE)}
    if user.is_admin or table.database in own:
        return Seen(table, list(table.columns), table.ids())
    all_of = [user, *(GROUPS[group] for group in user.groups)]
    granted = [*PUBLIC, *(grant for grants in all_of for grant in grants.read)]
    columns: set[str] = set().union(*(covers(grant, table) for grant in granted))
    ids = table.ids() if columns else []
    if table.full == "sky.Night" and not any(covers(grant, table) for grants in all_of for grant in grants.unreleased):
        ids = [n for n in ids if n % 2 == 0]
    return Seen(table, [column for column in table.columns if column in columns], ids)


@dataclass(frozen=True)
class Refused:
    """The table or a column does not exist for the user, or what is asked is nobody's."""

    what: str


@dataclass(frozen=True)
class Statement:
    """A kind of statement, and what it gives of the rows that are seen."""

    text: str
    needs: tuple[str, ...]
    rows: Callable[[Seen], Iterable[Row]]
    # Whether it is asked by slow protocols, too.
    everywhere: bool = False

    def expected(self, name: str, table: Table) -> list[Row] | Refused:
        of = seen(name, table)
        if not of.columns:
            return Refused("table")
        if not set(self.needs) <= set(of.columns):
            return Refused("column")
        return list(self.rows(of))


def count(of: Seen) -> list[Row]:
    return [(float(len(of.ids)),)]


STATEMENTS: list[Statement] = [
    Statement("SELECT COUNT(*) AS n FROM {t}", (), count),
    Statement("SELECT * FROM {t} ORDER BY id", ("id",), lambda of: of.rows(), everywhere=True),
    Statement("SELECT MAX(flux) AS m FROM {t}", ("flux",), lambda of: [(max(of.table.value("flux", n) for n in of.ids),)], everywhere=True),
    Statement("SELECT COUNT(*) AS n FROM {t} WHERE flux > 0", ("flux",), count),
    Statement("SELECT COUNT(*) AS n FROM {t} WHERE ra > 0", ("ra",), count),
    Statement("SELECT id FROM {t} WHERE id = 3", ("id",), lambda of: [(3.0,)] if 3 in of.ids else []),
    Statement("SELECT COUNT(*) AS n FROM {t} a JOIN {t} b ON a.id = b.id", ("id",), count),
    Statement("SELECT COUNT(*) AS n FROM (SELECT id FROM {t}) d", ("id",), count),
    Statement("SELECT COUNT(*) AS n FROM {t} a WHERE EXISTS (SELECT 1 FROM {t} b WHERE b.id = a.id AND b.flux > 0)", ("id", "flux"), count),
    Statement("SELECT id FROM {t} UNION SELECT id FROM {t} ORDER BY id", ("id",), lambda of: [(float(n),) for n in of.ids]),
    Statement("WITH w AS (SELECT id FROM {t}) SELECT MIN(id) AS m FROM w", ("id",), lambda of: [(float(min(of.ids)),)]),
]


def explained(name: str, table: Table, runs: bool) -> Refused | None:
    """Whether EXPLAIN is refused: of a view it is to who does not read the whole of the table that it reads, and EXPLAIN ANALYZE, which
    runs the query, to who sees released rows alone."""
    of = seen(name, table)
    if not of.columns:
        return Refused("table")
    if runs and len(of.ids) < len(table.ids()):
        return Refused("view")
    if table.reads is not None:
        base = TABLES[table.reads]
        if set(seen(name, base).columns) != set(base.columns):
            return Refused("view")
    return None
