-- How many warnings a statement had; their texts are beside its stored result.
ALTER TABLE queries ADD COLUMN warnings INTEGER NOT NULL DEFAULT 0;
