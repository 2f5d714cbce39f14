"""Rows of the test table, one module per op."""
