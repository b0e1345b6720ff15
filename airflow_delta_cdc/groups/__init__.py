"""The tasks of a group: detect changes, run Spark once for all tables with work, apply each, publish."""
