"""Draw the pictures of the pages: ``python docs/pictures``.

Run it after a change in this folder, of ``docs/contributing/benchmarks.md`` or of
``docs/explanation/late-events.md``, and commit what it writes; a test compares.
"""

from __future__ import annotations

from files import files

for file, written in files().items():
    file.write_text(written, encoding="utf-8")
