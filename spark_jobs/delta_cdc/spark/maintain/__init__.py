"""Maintain tables: OPTIMIZE, VACUUM, and expiry of events that no consumer needs any more."""
