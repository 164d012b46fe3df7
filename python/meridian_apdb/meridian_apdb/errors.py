"""Why a request failed, in the server's words."""

from __future__ import annotations


class AlertError(RuntimeError):
    """A request failed. `status` is HTTP's, or 0 where no server answered."""

    def __init__(self, sentence: str, status: int = 0) -> None:
        super().__init__(sentence)
        self.status = status


class InvalidRequest(AlertError, ValueError):
    """The request makes no sense: a column that the schema does not have, a value that does not fit."""


class NotFound(AlertError, LookupError):
    """Something that the request names does not exist. Nothing was changed."""


class Conflict(AlertError):
    """The request contradicts what is stored. Nothing was changed."""


class Unavailable(AlertError):
    """The server cannot be reached, or cannot do it now. A store may be sent again: it is stored once."""


def error_of(status: int, sentence: str) -> AlertError:
    """The error of a response."""
    kinds = {400: InvalidRequest, 404: NotFound, 409: Conflict, 413: InvalidRequest, 503: Unavailable}
    return kinds.get(status, AlertError)(sentence, status)
