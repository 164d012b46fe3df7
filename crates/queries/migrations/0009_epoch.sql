-- How often another front end has taken a query over, where several shared them: its journal and its result are named after that.
ALTER TABLE queries ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
