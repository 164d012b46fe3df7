-- Version 10: the time from which a table may be removed: UTC, ISO 8601 to the second. NULL is never.

ALTER TABLE tables ADD COLUMN expires_at TEXT COLLATE "C";
