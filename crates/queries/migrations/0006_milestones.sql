-- When the work of a query was handed out, begun and done: a line for each milestone.
ALTER TABLE queries ADD COLUMN milestones TEXT NOT NULL DEFAULT '';
