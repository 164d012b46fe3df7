"""The differential tester: random databases and statements, whose answers DuckDB or a law knows. See README.md."""
