"""Rows of tables: schema and encoding, validation, neighbors, Dask, and printed tables."""
