"""Ingests external change events into a change log, each exactly once."""
