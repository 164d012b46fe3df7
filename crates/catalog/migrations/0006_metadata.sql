-- Version 6: what databases, tables and columns mean. NULL is what nobody has said.

ALTER TABLE databases ADD COLUMN description TEXT;

ALTER TABLE tables ADD COLUMN description TEXT;
ALTER TABLE tables ADD COLUMN utype TEXT;
ALTER TABLE tables ADD COLUMN table_index INTEGER;

ALTER TABLE columns ADD COLUMN description TEXT;
ALTER TABLE columns ADD COLUMN unit TEXT;
ALTER TABLE columns ADD COLUMN ucd TEXT;
ALTER TABLE columns ADD COLUMN utype TEXT;
ALTER TABLE columns ADD COLUMN xtype TEXT;
ALTER TABLE columns ADD COLUMN principal INTEGER CHECK (principal IN (0, 1));
ALTER TABLE columns ADD COLUMN column_index INTEGER;
