"""What happens in PostgreSQL: pgbench's accounts, and documents whose rows are longer and odder.

The scripts run beside pgbench's own: rows come, change, get another key and leave, some of them several times
in one transaction; text has quotes and line breaks, columns are NULL, and the long ones are stored out of
line, so that most updates do not carry them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from demo.landing import SEQUENCE_DDL

if TYPE_CHECKING:
    from pathlib import Path

    from demo.postgres import Postgres

#: Accounts that pgbench's own script knows, at scale 1.
ACCOUNTS_AT_FIRST = 100_000


@dataclass(frozen=True)
class Table:
    """A table whose changes are captured.

    :param name: in PostgreSQL
    :param key: its key column
    :param columns: column -> type in Spark SQL; the key is among them
    """

    name: str
    key: str
    columns: dict[str, str]

    @property
    def schema(self) -> str:
        """Return what an event of it may hold, as Spark SQL DDL."""
        columns = [f"{name} {kind}" for name, kind in self.columns.items()]
        return ", ".join((*columns, SEQUENCE_DDL))


ACCOUNTS = Table(
    "pgbench_accounts", "aid", {"aid": "INT", "bid": "INT", "abalance": "INT", "filler": "STRING"}
)
DOCUMENTS = Table(
    "documents",
    "id",
    {
        "id": "BIGINT",
        "title": "STRING",
        "body": "STRING",
        "price": "DECIMAL(12,2)",
        "active": "BOOLEAN",
        "tags": "STRING",
        "changed_at": "TIMESTAMP",
    },
)
TABLES = (ACCOUNTS, DOCUMENTS)

_CREATE = (
    """
    CREATE TABLE documents (
        id bigint PRIMARY KEY,
        title text,
        body text,
        price numeric(12,2),
        active boolean,
        tags text[],
        changed_at timestamptz NOT NULL
    )""",
    # Never compressed: a body of some thousand characters is kept out of line.
    "ALTER TABLE documents ALTER body SET STORAGE EXTERNAL",
    # Rows are logged whole before a change: one that gets another key takes its body along.
    "ALTER TABLE documents REPLICA IDENTITY FULL",
    # Keys that no row has had yet.
    "CREATE SEQUENCE new_keys START 10000000",
)

_ACCOUNTS = r"""
\set aid random(1, :accounts)
\set delta random(-5000, 5000)
\set what random(1, 100)
\if :what <= 60
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
\elif :what <= 72
UPDATE pgbench_accounts SET filler = CASE WHEN :delta % 3 = 0 THEN NULL
    ELSE concat('it''s "', :delta, E'"\nand \\ more') END WHERE aid = :aid;
\elif :what <= 77
DELETE FROM pgbench_accounts WHERE aid = :aid;
\elif :what <= 93
INSERT INTO pgbench_accounts VALUES (:aid, 1, :delta, NULL) ON CONFLICT (aid) DO UPDATE SET abalance = 0;
\elif :what <= 95
UPDATE pgbench_accounts SET aid = nextval('new_keys') WHERE aid = :aid;
\else
BEGIN;
UPDATE pgbench_accounts SET abalance = 0 WHERE aid = :aid;
UPDATE pgbench_accounts SET abalance = :delta, filler = '' WHERE aid = :aid;
DELETE FROM pgbench_accounts WHERE aid = :aid;
INSERT INTO pgbench_accounts VALUES (:aid, 2, :delta, 'again') ON CONFLICT DO NOTHING;
COMMIT;
\endif
"""

_DOCUMENTS = r"""
\set id random(1, 2000)
\set n random(1, 1000)
\set what random(1, 100)
\if :what <= 40
INSERT INTO documents VALUES (:id, concat('The "', :n, '"th: it''s'), repeat(concat(:n, E' \\ \n\t'), 600),
    :n / 7.0, :n % 2 = 0, ARRAY['a,b', NULL, concat('n', :n)], clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET title = concat('again ', :n), changed_at = clock_timestamp();
\elif :what <= 60
UPDATE documents SET price = NULLIF(:n, 500) * 0.01, active = NULL, changed_at = clock_timestamp()
    WHERE id = :id;
\elif :what <= 70
UPDATE documents SET body = CASE WHEN :n % 2 = 0 THEN NULL ELSE repeat('é', 3000) END, tags = '{}'
    WHERE id = :id;
\elif :what <= 85
UPDATE documents SET id = nextval('new_keys') WHERE id = :id;
\else
DELETE FROM documents WHERE id = :id;
\endif
"""


def create(server: Postgres) -> None:
    """Create the tables, pgbench's and ours, without rows."""
    server.run("pgbench", "--initialize", "--quiet", "--init-steps", "dtp")
    server.execute(*_CREATE)


def fill(server: Postgres, *, accounts: int = ACCOUNTS_AT_FIRST) -> None:
    """Fill pgbench's tables as it does, in one transaction: a slot that is open sees all of it."""
    server.execute(
        "BEGIN; TRUNCATE pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers; "
        "INSERT INTO pgbench_branches VALUES (1, 0, NULL); "
        "INSERT INTO pgbench_tellers SELECT id, 1, 0, NULL FROM generate_series(1, 10) AS id; "
        f"INSERT INTO pgbench_accounts SELECT id, 1, 0, '' FROM generate_series(1, {accounts}) AS id; "
        "COMMIT"
    )


def scripts(folder: Path, *tables: Table, accounts: int = ACCOUNTS_AT_FIRST) -> list[str]:
    """Write the scripts that change tables; return pgbench's options that run them.

    :param accounts: keys from 1 to this one are tried
    """
    options = ["--define", f"accounts={accounts}"]
    for table in tables:
        file = folder / f"{table.name}.sql"
        file.write_text(_SCRIPTS[table.name])
        options += ["--file", f"{file}@{_WEIGHTS[table.name]}"]
    return options


_SCRIPTS = {ACCOUNTS.name: _ACCOUNTS, DOCUMENTS.name: _DOCUMENTS}
_WEIGHTS = {ACCOUNTS.name: 4, DOCUMENTS.name: 2}
