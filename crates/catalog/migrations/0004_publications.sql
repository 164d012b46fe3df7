-- Version 4: what readers see has a number, which every change of it raises.

CREATE TABLE publications (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    counter INTEGER NOT NULL CHECK (counter >= 0)
) STRICT;

INSERT INTO publications (id, counter) VALUES (1, 0);
