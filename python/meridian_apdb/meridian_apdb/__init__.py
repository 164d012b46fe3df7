"""Stores into and reads from the nightly alert databases of a Meridian server."""

from .client import AlertDatabase, DAYS_OF_HISTORY
from .errors import AlertError, Conflict, InvalidRequest, NotFound, Unavailable
from .regions import box, circle, polygon

__all__ = [
    "DAYS_OF_HISTORY",
    "AlertDatabase",
    "AlertError",
    "Conflict",
    "InvalidRequest",
    "NotFound",
    "Unavailable",
    "box",
    "circle",
    "polygon",
]
