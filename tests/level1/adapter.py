"""The field's client interface to alert databases (`lsst.dax.apdb`), on a Meridian server.

The package has no place where an implementation can be registered, so its factory functions are replaced by name.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

import astropy.time
import felis.datamodel
import pandas
import pyarrow as pa
from lsst.dax.apdb import (
    Apdb,
    ApdbConfig,
    ApdbMetadata,
    ApdbReplica,
    ApdbTableData,
    ApdbTables,
    ApdbUpdateRecord,
    DiaForcedSourceId,
    DiaObjectId,
    DiaSourceId,
    IncompatibleVersionError,
    ReplicaChunk,
    VersionTuple,
)
from lsst.dax.apdb import apdb as apdb_module
from lsst.dax.apdb import apdbReplica as replica_module
from lsst.dax.apdb import config as config_module
from lsst.dax.apdb import factory
from lsst.dax.apdb.apdbSchema import ApdbSchema
from lsst.dax.apdb.schema_model import Table
from lsst.sphgeom import Box, Circle, ConvexPolygon, LonLat, Region
from meridian_apdb import AlertDatabase, Conflict, NotFound, box, circle, polygon

# The tests look for what is logged below this name.
_LOG = logging.getLogger("lsst.dax.apdb.meridian")
DAYS_OF_A_MONTH = 30
# Degrees, by which a circle is larger than its radius: what rounding of radians may lose.
PAD = 1e-9
NUMPY_TYPES = {
    pa.int64(): pandas.Int64Dtype(),
    pa.int32(): pandas.Int32Dtype(),
    pa.int16(): pandas.Int16Dtype(),
    pa.bool_(): pandas.BooleanDtype(),
}
REPLICATED = (ApdbTables.DiaObject, ApdbTables.DiaSource, ApdbTables.DiaForcedSource)


class MeridianApdbConfig(ApdbConfig):
    """Where the database is."""

    _implementation_type: ClassVar[str] = "meridian"

    url: str
    database: str


class MeridianMetadata(ApdbMetadata):
    """Keys and values."""

    def __init__(self, apdb: MeridianApdb) -> None:
        self._apdb = apdb

    def get(self, key: str, default: str | None = None) -> str | None:
        return self._apdb.database.metadata().get(key, default)

    def set(self, key: str, value: str, *, force: bool = False) -> None:
        if not key or not value:
            raise ValueError("neither the key nor the value of metadata can be empty")
        try:
            self._apdb.database.set_metadata(key, value, replace=force)
        except Conflict as error:
            raise KeyError(str(error)) from error

    def delete(self, key: str) -> bool:
        return self._apdb.database.delete_metadata(key)

    def items(self) -> Generator[tuple[str, str], None, None]:
        # Asked for when this is called, and not when the first one is taken.
        pairs = self._apdb.database.metadata().items()
        return (pair for pair in pairs)

    def empty(self) -> bool:
        return not self._apdb.database.metadata()


class MeridianApdb(Apdb):
    """An alert database."""

    def __init__(self, config: MeridianApdbConfig) -> None:
        self._schema = ApdbSchema(config.schema_file, config.ss_schema_file)
        self._database = AlertDatabase(config.url, config.database, token=os.environ.get("MERIDIAN_TOKEN"))
        self._config = config
        self._described: dict[str, Any] | None = None
        self._metadata = MeridianMetadata(self)

    @property
    def database(self) -> AlertDatabase:
        """The database, once its schema is known to fit."""
        self.described()
        return self._database

    def described(self) -> dict[str, Any]:
        if self._described is None:
            described = self._database.describe()
            stored = VersionTuple.fromString(described["schema_version"])
            if not self._schema.schemaVersion().checkCompatibility(stored):
                raise IncompatibleVersionError(
                    f"the schema of the file is {self._schema.schemaVersion()}, that of the database {stored}"
                )
            self._described = described
        return self._described

    @property
    def has_replica(self) -> bool:
        return self.described()["replica_seconds"] is not None

    def getConfig(self) -> ApdbConfig:
        return self._config.model_copy(update={"enable_replica": self.has_replica})

    def tableDef(self, table: ApdbTables) -> Table | None:
        return self._schema.tableSchemas.get(table)

    @property
    def schema(self) -> ApdbSchema:
        return self._schema

    @property
    def metadata(self) -> ApdbMetadata:
        return self._metadata

    @property
    def admin(self) -> Any:
        raise NotImplementedError("rows are removed by the server's operator")

    # Reading.

    def getDiaObjects(self, region: Region) -> pandas.DataFrame:
        return frame(self.database.latest_objects(region_text(region)))

    def getDiaSources(
        self,
        region: Region,
        object_ids: Iterable[int] | None,
        visit_time: astropy.time.Time,
        start_time: astropy.time.Time | None = None,
    ) -> pandas.DataFrame | None:
        since = first_time(visit_time, start_time, self._config.read_sources_months)
        if since is None:
            return None
        return frame(self.database.sources(since=since, **selection(region, object_ids)))

    def getDiaForcedSources(
        self,
        region: Region,
        object_ids: Iterable[int] | None,
        visit_time: astropy.time.Time,
        start_time: astropy.time.Time | None = None,
    ) -> pandas.DataFrame | None:
        since = first_time(visit_time, start_time, self._config.read_forced_sources_months)
        if since is None:
            return None
        return frame(self.database.forced_sources(since=since, **selection(region, object_ids)))

    def getDiaObjectsForDedup(self, since: astropy.time.Time | None = None) -> pandas.DataFrame:
        return frame(self.database.objects_since(None if since is None else mjd(since)))

    def getDiaSourcesForDiaObjects(
        self, objects: list[DiaObjectId], start_time: astropy.time.Time, max_dist_arcsec: float = 1.0
    ) -> pandas.DataFrame:
        ids = [object_id.diaObjectId for object_id in objects]
        return frame(self.database.sources(objects=ids, since=mjd(start_time)))

    def containsVisitDetector(
        self,
        visit: int,
        detector: int,
        region: Region | None = None,
        visit_time: astropy.time.Time | None = None,
    ) -> bool:
        return self.database.contains(visit, detector)

    def countUnassociatedObjects(self) -> int:
        return self.database.count_objects_of_one_source()

    # Storing and changing.

    def store(
        self,
        visit_time: astropy.time.Time,
        objects: pandas.DataFrame,
        sources: pandas.DataFrame | None = None,
        forced_sources: pandas.DataFrame | None = None,
    ) -> None:
        if objects.empty:
            _LOG.debug("No objects to store")
        self.database.store(
            mjd(visit_time),
            objects=rows(objects),
            sources=rows(sources),
            forced_sources=rows(forced_sources),
        )

    def reassignDiaSources(self, idMap: Mapping[int, int]) -> None:
        try:
            self.database.reassign_to_solar_system(idMap, time=mjd(self._current_time()))
        except NotFound as error:
            raise ValueError(str(error)) from error

    def reassignDiaSourcesToDiaObjects(
        self,
        idMap: Mapping[DiaSourceId, int],
        *,
        increment_nDiaSources: bool = True,
        decrement_nDiaSources: bool = True,
    ) -> None:
        self.database.reassign_to_objects(
            {source.diaSourceId: target for source, target in idMap.items()},
            time=mjd(self._current_time()),
            increment=increment_nDiaSources,
            decrement=decrement_nDiaSources,
        )

    def setValidityEnd(
        self, objects: list[DiaObjectId], validityEnd: astropy.time.Time, raise_on_missing_id: bool = False
    ) -> int:
        return self.database.close_objects(
            [object_id.diaObjectId for object_id in objects],
            validity_end=mjd(validityEnd),
            time=mjd(self._current_time()),
            must_exist=raise_on_missing_id,
        )

    def resetDedup(self, dedup_time: astropy.time.Time | None = None) -> None:
        self.database.reset_deduplication(mjd(dedup_time or self._current_time()))

    def withdrawDiaSources(
        self, diaSourceIds: Iterable[DiaSourceId], *, timeWithdrawn: astropy.time.Time | None = None
    ) -> None:
        now = self._current_time()
        ids = [source.diaSourceId for source in diaSourceIds]
        self.database.withdraw_sources(ids, withdrawn=mjd(timeWithdrawn or now), time=mjd(now))

    def withdrawDiaForcedSources(
        self, diaForcedSourceIds: Iterable[DiaForcedSourceId], *, timeWithdrawn: astropy.time.Time | None = None
    ) -> None:
        now = self._current_time()
        keys = [(source.diaObjectId, source.visit, source.detector) for source in diaForcedSourceIds]
        self.database.withdraw_forced_sources(keys, withdrawn=mjd(timeWithdrawn or now), time=mjd(now))

    def append_updates(self, records: list[ApdbUpdateRecord], chunk: ReplicaChunk) -> None:
        """Adds records of another database to the log of updates."""
        if not self.has_replica:
            raise TypeError("the database keeps no replica chunks")
        updates = [
            json.loads(record.to_json())
            | {"update_time_ns": record.update_time_ns, "update_order": record.update_order}
            for record in records
        ]
        self.database.append_updates(updates, time=mjd(chunk.last_update_time))


class MeridianTableData(ApdbTableData):
    """Rows of replica chunks."""

    def __init__(self, table: pa.Table, definition: Table) -> None:
        self._table = table
        self._types = {column.name: column.datatype for column in definition.columns}

    def column_names(self) -> Sequence[str]:
        return self._table.column_names

    def column_defs(self) -> Sequence[tuple[str, felis.datamodel.DataType]]:
        return [(name, self._types.get(name, felis.datamodel.DataType.long)) for name in self._table.column_names]

    def rows(self) -> Collection[tuple]:
        return list(zip(*(column.to_pylist() for column in self._table.columns), strict=True))


class MeridianReplica(ApdbReplica):
    """Replica chunks of an alert database."""

    def __init__(self, apdb: MeridianApdb) -> None:
        self._apdb = apdb

    @classmethod
    def apdbReplicaImplementationVersion(cls) -> VersionTuple:
        return VersionTuple(1, 0, 0)

    def schemaVersion(self) -> VersionTuple:
        return VersionTuple.fromString(self._apdb.described()["schema_version"])

    def getReplicaChunks(self) -> list[ReplicaChunk] | None:
        chunks = self._apdb.database.replica_chunks()
        if chunks is None:
            return None
        return [
            ReplicaChunk(
                id=chunk["id"],
                last_update_time=astropy.time.Time(chunk["last_update_ns"] / 1e9, format="unix_tai"),
                unique_id=UUID(chunk["unique_id"]),
            )
            for chunk in chunks
        ]

    def deleteReplicaChunks(self, chunks: Iterable[int]) -> None:
        self._apdb.database.delete_replica_chunks(chunks)

    def getTableDataChunks(self, table: ApdbTables, chunks: Iterable[int]) -> ApdbTableData:
        if table not in REPLICATED:
            raise ValueError(f"{table.value} does not support replica chunks")
        if not self._apdb.has_replica:
            raise ValueError("APDB is not configured for replication")
        definition = self._apdb.tableDef(table)
        assert definition is not None
        return MeridianTableData(self._apdb.database.rows_of_chunks(table.value, chunks), definition)

    def getUpdateRecordChunks(self, chunks: Iterable[int]) -> Sequence[ApdbUpdateRecord]:
        records = []
        for update in self._apdb.database.updates_of_chunks(chunks):
            time_ns, order = update.pop("update_time_ns"), update.pop("update_order")
            records.append(ApdbUpdateRecord.from_json(time_ns, order, json.dumps(update)))
        return records


def mjd(time: astropy.time.Time) -> float:
    """A time as a Modified Julian Date (TAI)."""
    return float(time.tai.mjd)


def first_time(visit_time: astropy.time.Time, start: astropy.time.Time | None, months: int) -> float | None:
    """From when on sources are read; None if none are."""
    if start is not None:
        return mjd(start)
    return mjd(visit_time) - months * DAYS_OF_A_MONTH if months else None


def selection(region: Region, object_ids: Iterable[int] | None) -> dict[str, Any]:
    """Objects are enough to find their sources."""
    if object_ids is not None:
        return {"objects": list(object_ids)}
    return {"region": region_text(region)}


def region_text(region: Region) -> str:
    """A region as the server reads it; of other shapes the circle around them."""
    if isinstance(region, ConvexPolygon):
        corners = [LonLat(vertex) for vertex in region.getVertices()]
        return polygon((corner.getLon().asDegrees() % 360, corner.getLat().asDegrees()) for corner in corners)
    if isinstance(region, Box):
        lon, lat = region.getLon(), region.getLat()
        degrees = (lon.getA(), lat.getA(), lon.getB(), lat.getB())
        return box(*(angle.asDegrees() for angle in degrees))
    bounds = region if isinstance(region, Circle) else region.getBoundingCircle()
    centre = LonLat(bounds.getCenter())
    radius = bounds.getOpeningAngle().asDegrees() + PAD
    return circle(centre.getLon().asDegrees() % 360, centre.getLat().asDegrees(), min(radius, 180.0))


def frame(table: pa.Table) -> pandas.DataFrame:
    """A table as pipelines have it: whole numbers and flags that may be NULL, NaN for a double that is."""
    return table.to_pandas(types_mapper=NUMPY_TYPES.get)


def rows(data: pandas.DataFrame | None) -> pa.Table | None:
    """A pipeline's table."""
    return None if data is None else pa.Table.from_pandas(data, preserve_index=False)


def install() -> None:
    """Has the package make our databases of our configurations."""
    make_other, make_other_replica = factory.make_apdb, factory.make_apdb_replica
    other_config_type = factory.config_type_for_name

    def make_apdb(config: ApdbConfig) -> Apdb:
        return MeridianApdb(config) if isinstance(config, MeridianApdbConfig) else make_other(config)

    def make_apdb_replica(config: ApdbConfig) -> ApdbReplica:
        if isinstance(config, MeridianApdbConfig):
            return MeridianReplica(MeridianApdb(config))
        return make_other_replica(config)

    def config_type_for_name(name: str) -> type[ApdbConfig]:
        return MeridianApdbConfig if name == "meridian" else other_config_type(name)

    for module in (factory, apdb_module, replica_module, config_module):
        for function in (make_apdb, make_apdb_replica, config_type_for_name):
            if hasattr(module, function.__name__):
                setattr(module, function.__name__, function)
