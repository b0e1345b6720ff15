"""Read changes of a Delta table as one DataFrame shape."""
