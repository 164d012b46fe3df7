-- cte_max_recursion_depth and group_concat_max_len of the connection, where it had set them.
ALTER TABLE queries ADD COLUMN recursion_depth INTEGER;
ALTER TABLE queries ADD COLUMN group_concat_bytes INTEGER;
