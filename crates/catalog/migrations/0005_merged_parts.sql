-- The parts that a part was merged from, as `3-5,9`: the numbers under which they were loaded. Empty for a part that was loaded.

ALTER TABLE parts ADD COLUMN merged_from TEXT NOT NULL DEFAULT '';
