-- Version 8: views whose columns have names of their own, and what is said of views and their columns.

-- What heads the columns in the result of the definition, as a JSON array of strings; NULL where these are their names.
ALTER TABLE views ADD COLUMN headings TEXT;

-- What is said of the view and of its columns besides its description, as JSON; NULL where nothing is.
ALTER TABLE views ADD COLUMN metadata TEXT;
