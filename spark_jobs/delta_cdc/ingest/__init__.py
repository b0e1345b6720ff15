"""External change sets into a change log, every event once."""
