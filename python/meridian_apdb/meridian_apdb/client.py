"""The client of an alert database."""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import json
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa

from .errors import AlertError, Unavailable, error_of

DAYS_OF_HISTORY = 12 * 30
"""How far back pipelines read sources, in days."""

ARROW = "application/vnd.apache.arrow.stream"
PAUSE_SECONDS = 0.2


class AlertDatabase:
    """An alert database of a server.

    Parameters
    ----------
    url
        The server, as in ``http://127.0.0.1:8080`` or ``https://archive.example.org``.
    name
        The database's name.
    token, user, password
        Who asks, where the server has users: a token, or a name and a password.
    timeout
        Seconds that a response may take.
    retries
        How often a read, or a store, is sent again when the server cannot be reached or cannot do it now. A store that is sent again is
        stored once. Other changes are not sent again.
    context
        How the server's certificate is verified; by the system's authorities by default.

    An instance may be used by several threads: each has a connection of its own.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        token: str | None = None,
        user: str | None = None,
        password: str | None = None,
        timeout: float = 120.0,
        retries: int = 5,
        context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a server: give one as in http://127.0.0.1:8080")
        self.url = url
        self.name = name
        self._host, self._port, self._encrypted = parts.hostname, parts.port, parts.scheme == "https"
        self._path = f"{parts.path.rstrip('/')}/alerts/{quote(name, safe='')}"
        self._timeout, self._retries, self._context = timeout, retries, context
        self._headers: dict[str, str] = {}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        elif user is not None:
            secret = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {secret}"
        self._local = threading.local()

    # What it is.

    def describe(self) -> dict[str, Any]:
        """Its name, its store, the version of its schema, and the seconds of a replica chunk (None if it keeps none)."""
        return self._object("GET", "")

    def schema_text(self) -> str:
        """The schema, in Felis's language."""
        return self._request("GET", "/schema").decode()

    def set_schema(self, text: str) -> None:
        """Use another schema, which may have more nullable columns. Clients that do not give these go on storing."""
        self._request("PUT", "/schema", text.encode(), "application/yaml")

    # Reading.

    def latest_objects(self, region: str) -> pa.Table:
        """The latest versions of the live objects in a region, in the columns of DiaObjectLast."""
        return self._table("/objects/latest", {"region": region})

    def objects_since(self, since: float | None = None) -> pa.Table:
        """The objects whose latest version began at a time or later; since `reset_deduplication` if no time is given."""
        return self._table("/objects/since", {"since": since})

    def sources(self, *, region: str | None = None, objects: Iterable[int] | None = None, since: float) -> pa.Table:
        """The sources of a region or of objects, of exposures whose middle is at a time or later.

        Sources that belong to objects of the solar system are left out.
        """
        return self._table("/sources", _selection(region, objects, since))

    def forced_sources(self, *, region: str | None = None, objects: Iterable[int] | None = None, since: float) -> pa.Table:
        """The forced sources of a region or of objects, of exposures whose middle is at a time or later."""
        return self._table("/forced-sources", _selection(region, objects, since))

    def contains(self, visit: int, detector: int) -> bool:
        """Whether a source or a forced source of a detector's exposure was stored."""
        return bool(self._object("GET", f"/visits/{int(visit)}/{int(detector)}")["stored"])

    def count_objects_of_one_source(self) -> int:
        """How many live objects have exactly one source."""
        return int(self._object("GET", "/objects/of-one-source")["count"])

    # Storing.

    def store(
        self,
        visit_time: float,
        *,
        objects: Any = None,
        sources: Any = None,
        forced_sources: Any = None,
        request: str | None = None,
    ) -> bool:
        """Store what was found in a detector's exposure: all of it, or nothing.

        A new version of an object ends the one before. When this returns, everything is on disk; it gives False if it was stored before,
        which is recognised by `request`, by default a hash of the content.
        """
        body = io.BytesIO()
        tables = {"DiaObject": objects, "DiaSource": sources, "DiaForcedSource": forced_sources}
        for name, rows in tables.items():
            if rows is not None:
                _write_table(body, name, pa.table(rows) if not isinstance(rows, pa.Table) else rows)
        content = body.getvalue()
        if request is None:
            request = hashlib.sha256(f"{visit_time!r}\n".encode() + content).hexdigest()
        query = urlencode({"visit_time": repr(float(visit_time)), "request": request})
        answer = self._request("POST", f"/store?{query}", content, ARROW, may_retry=True)
        return not json.loads(answer)["repeated"]

    # Changing.

    def reassign_to_solar_system(self, sources: Mapping[int, int], *, time: float) -> int:
        """Sources belong to objects of the solar system, given by source. An object that is left without sources is closed."""
        return self._change("/sources/to-solar-system", {"sources": _pairs(sources), "time": time})

    def reassign_to_objects(
        self, sources: Mapping[int, int], *, time: float, increment: bool = True, decrement: bool = True
    ) -> int:
        """Sources belong to other objects, given by source; whether these count them, and the former no longer."""
        body = {"sources": _pairs(sources), "time": time, "increment": increment, "decrement": decrement}
        return self._change("/sources/to-objects", body)

    def close_objects(self, objects: Iterable[int], *, validity_end: float, time: float, must_exist: bool = False) -> int:
        """The latest versions of objects are valid no longer. Gives how many were closed."""
        body = {"objects": _ints(objects), "validity_end": validity_end, "time": time, "must_exist": must_exist}
        return self._change("/objects/close", body)

    def withdraw_sources(self, sources: Iterable[int], *, withdrawn: float, time: float) -> int:
        """Withdraw sources. Gives how many were: those that had been stay as they are."""
        return self._change("/sources/withdraw", {"sources": _ints(sources), "withdrawn": withdrawn, "time": time})

    def withdraw_forced_sources(self, sources: Iterable[tuple[int, int, int]], *, withdrawn: float, time: float) -> int:
        """Withdraw forced sources, each given by its object, visit and detector. Gives how many were."""
        body = {"sources": [_ints(key) for key in sources], "withdrawn": withdrawn, "time": time}
        return self._change("/forced-sources/withdraw", body)

    def reset_deduplication(self, time: float) -> None:
        """Remember when duplicate objects were merged."""
        self._change("/deduplication/reset", {"time": time})

    # Metadata.

    def metadata(self) -> dict[str, str]:
        """All metadata."""
        return self._object("GET", "/metadata")

    def set_metadata(self, key: str, value: str, *, replace: bool = False) -> None:
        """Set metadata. A key that is there is replaced only if that is wanted; else it is a `Conflict`."""
        body = json.dumps({"value": value, "replace": replace}).encode()
        self._request("PUT", f"/metadata/{quote(key, safe='')}", body)

    def delete_metadata(self, key: str) -> bool:
        """Delete metadata. Gives whether it was there."""
        return self._object("DELETE", f"/metadata/{quote(key, safe='')}")["count"] > 0

    # Replica chunks.

    def replica_chunks(self) -> list[dict[str, Any]] | None:
        """The replica chunks: `id` (seconds since 1970, TAI), `last_update_ns` and `unique_id`. None if the database keeps none."""
        return self._object("GET", "/replica-chunks")["chunks"]

    def publish(self) -> list[dict[str, Any]]:
        """Has the server publish what is closed by now, which it does within a minute by itself: `edition`, `replica_chunks` and `rows` of each."""
        return json.loads(self._request("POST", "/publish", b"", may_retry=True))["editions"]

    def follow(self, *, all_rows: bool = False) -> dict[str, Any]:
        """Has the server read what is new in the database that this one follows, which it does within ten minutes by itself, or all rows
        anew: how many `replica_chunks` were new or had changed, and how many `rows` were new."""
        path = "/follow?all=true" if all_rows else "/follow"
        return json.loads(self._request("POST", path, b"", may_retry=True))

    def rows_of_chunks(self, table: str, chunks: Iterable[int]) -> pa.Table:
        """The rows of a table that were stored in replica chunks, with the column `apdb_replica_chunk`."""
        return self._table("/replica-chunks/rows", {"table": table, "chunks": _ints(chunks)})

    def updates_of_chunks(self, chunks: Iterable[int]) -> list[dict[str, Any]]:
        """The updates that were logged in replica chunks, in their order."""
        body = json.dumps({"chunks": _ints(chunks)}).encode()
        return json.loads(self._request("POST", "/replica-chunks/updates", body, may_retry=True))["updates"]

    def delete_replica_chunks(self, chunks: Iterable[int]) -> int:
        """Forget replica chunks. Their rows stay."""
        return self._change("/replica-chunks/delete", {"chunks": _ints(chunks)})

    def append_updates(self, updates: Iterable[Mapping[str, Any]], *, time: float) -> int:
        """Add updates of another database to the log, in the replica chunk of a time."""
        return self._change("/updates", {"updates": [dict(update) for update in updates], "time": time})

    # Requests.

    def _table(self, path: str, body: Mapping[str, Any]) -> pa.Table:
        answer = self._request("POST", path, json.dumps(body).encode(), may_retry=True)
        with pa.ipc.open_stream(answer) as reader:
            return reader.read_all()

    def _object(self, method: str, path: str) -> Any:
        return json.loads(self._request(method, path, may_retry=method == "GET"))

    def _change(self, path: str, body: Mapping[str, Any]) -> int:
        return int(json.loads(self._request("POST", path, json.dumps(body).encode()))["count"])

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        media_type: str = "application/json",
        *,
        may_retry: bool = False,
    ) -> bytes:
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = media_type
        attempts = 1 + (self._retries if may_retry else 0)
        for attempt in range(attempts):
            # A connection that was idle may have been closed: what may not be sent twice gets a new one.
            connection = self._connection(is_new=attempt > 0 or not may_retry)
            try:
                connection.request(method, self._path + path, body, headers)
                response = connection.getresponse()
                content = response.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                failure: AlertError = Unavailable(f"{self.url} does not answer: {error!r}")
            else:
                if response.status < 300:
                    return content
                failure = error_of(response.status, _sentence(content, response.reason))
                if not isinstance(failure, Unavailable):
                    raise failure
            if attempt + 1 < attempts:
                time.sleep(PAUSE_SECONDS * 2**attempt)
        raise failure

    def _connection(self, *, is_new: bool) -> http.client.HTTPConnection:
        known = getattr(self._local, "connection", None)
        if known is not None and not is_new:
            return known
        if known is not None:
            known.close()
        made: http.client.HTTPConnection
        if self._encrypted:
            context = self._context or ssl.create_default_context()
            made = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=context)
        else:
            made = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        self._local.connection = made
        return made


def _sentence(content: bytes, reason: str) -> str:
    """What a response says is wrong."""
    try:
        return str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return content.decode("utf-8", "replace").strip() or reason


def _selection(region: str | None, objects: Iterable[int] | None, since: float) -> dict[str, Any]:
    if (region is None) == (objects is None):
        raise ValueError("give either a region or objects")
    if region is not None:
        return {"region": region, "since": since}
    return {"objects": _ints(objects or []), "since": since}


def _ints(values: Iterable[int]) -> list[int]:
    if isinstance(values, pa.ChunkedArray | pa.Array):
        return values.to_pylist()
    return [int(value) for value in values]


def _pairs(mapping: Mapping[int, int]) -> list[list[int]]:
    return [[int(source), int(target)] for source, target in mapping.items()]


def _write_table(body: io.BytesIO, name: str, table: pa.Table) -> None:
    """One Arrow stream, whose schema names the table."""
    table = table.replace_schema_metadata({"table": name})
    with pa.ipc.new_stream(body, table.schema) as writer:
        writer.write_table(table)
