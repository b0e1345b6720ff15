"""Care of tables: layout, removed files, and events that nobody needs any more."""
