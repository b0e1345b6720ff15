"""The tasks of a group: a look at all its tables, one application for those with work, a task for each."""
