"""Write the tables of keys in ``docs/reference/configuration.md`` from the models of the configuration.

Run ``python docs/keys.py`` after a change of a key, and commit both; a test compares them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "reference" / "configuration.md"
_TABLE = re.compile(r"(<!-- keys of (?:a )?(\w+) -->\n\n)(?:.+\n)*")


def rows(names: tuple[str, ...]) -> list[str]:
    """Return a row for each key that is no option: its name, what is given for it, and what it means."""
    from delta_cdc.config import json_schema, models

    keys, expected = json_schema()["$defs"], models.expectations()
    head = ["| key | value | meaning |", "|---|---|---|"]
    return [*head, *(_row(name, expected[name], keys[f"key.{name}"]) for name in names)]


def links(names: tuple[str, ...]) -> list[str]:
    """Return a line with a link for each key that is an option."""
    return [", ".join(f"[`{name}`](options.md)" for name in names)]


def _row(name: str, value: str, key: dict[str, Any]) -> str:
    # Which texts look like numbers is written once, above the tables.
    shown = value.removesuffix("; one that looks like a number needs quotes").replace("|", "\\|")
    return f"| `{name}` | {shown} | {key['description']} |".replace("<", "&lt;")


def page() -> str:
    """Return the page with the tables as they are now."""
    from delta_cdc.config import models
    from delta_cdc.core.options import INGEST

    flat = tuple(name for name in models.default_keys() if name in models.table_keys())
    options = tuple(name for name in flat if name in INGEST)
    tables = {"table": links(options), "pipelines": rows(tuple(name for name in flat if name not in INGEST))}
    tables |= {"group": rows(models.dag_keys())}
    tables |= {group: links(names) for group, names in models.IN_GROUPS.items()}
    text = PAGE.read_text(encoding="utf-8")
    return _TABLE.sub(lambda found: found[1] + "\n".join([*tables[found[2]], ""]), text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
