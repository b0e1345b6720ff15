"""Compute, without the engine, what the targets of a change stream must hold.

The current rows are PostgreSQL's own. DuckDB computes the history from the files in the landing folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from demo.postgres import Postgres
    from demo.workload import Table

#: Spark's types -> DuckDB's, where they have other names.
_TYPES = {"STRING": "VARCHAR", "TIMESTAMP": "TIMESTAMPTZ", "INT": "INTEGER"}


def export(server: Postgres, table: Table, folder: Path) -> str:
    """Write a table of PostgreSQL to a file, as text; return a query for its rows."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{table.name}.csv"
    names = ", ".join(map(_quote, table.columns))
    options = r"FORMAT csv, HEADER, NULL '\N'"
    copied = server.run(
        "psql", "-X", "-q", "-c", f"COPY (SELECT {names} FROM {table.name}) TO STDOUT ({options})"
    )
    file.write_bytes(copied.encode())
    cast = ", ".join(
        f"CAST({_quote(name)} AS {_type(kind)}) AS {name}" for name, kind in table.columns.items()
    )
    return (
        f"SELECT {cast} FROM read_csv('{file}', header = true, all_varchar = true, delim = ',', "
        "quote = '\"', escape = '\"', nullstr = '\\N', allow_quoted_nulls = false, "
        "max_line_size = 10000000)"
    )


def history(landed: Path, table: Table) -> str:
    r"""Return a query that computes the history of every row from the events that have landed.

    A row of it is a state that lasted: from the event that brought it to the next one that changed or
    removed it. What an event does not carry stays as it was, until the row is removed.

    :param landed: the landing folder
    """
    key = table.key
    values = [name for name in table.columns if name != key]
    carried = ", ".join(f"json_extract(event, '$.{name}') AS {name}" for name in values)
    kinds = table.columns
    # A NULL that an event carries is JSON's null here, which is a value.
    kept = ", ".join(
        f"CAST(last_value({name} IGNORE NULLS) OVER of_life ->> '$' AS {_type(kinds[name])}) AS {name}"
        for name in values
    )
    state = f"row({', '.join(values)})"
    return f"""
        WITH told AS (
            SELECT json AS event, json ->> '$.pg_op' AS op, json ->> '$.pg_sequence' AS seq
            FROM {_lines(landed, table)}
        ), keyed AS (
            SELECT CAST(event ->> '$.{key}' AS {_type(kinds[key])}) AS {key}, op, seq, {carried}
            FROM told WHERE op <> 'truncate'
        ), events AS (
            SELECT {key}, op = 'delete' AS leaves, seq, {", ".join(values)} FROM keyed
            UNION ALL BY NAME
            SELECT {key}, true AS leaves, seq
            FROM (SELECT DISTINCT {key} FROM keyed), (SELECT seq FROM told WHERE op = 'truncate')
        ), lives AS (
            SELECT *, count(*) FILTER (leaves) OVER (PARTITION BY {key} ORDER BY seq) AS life FROM events
        ), states AS (
            SELECT {key}, leaves, seq, life, {kept} FROM lives
            WINDOW of_life AS (PARTITION BY {key}, life ORDER BY seq)
        ), marked AS (
            SELECT *, leaves OR coalesce(lag(leaves) OVER of_key, true)
                OR lag({state}) OVER of_key IS DISTINCT FROM {state} AS cuts
            FROM states WINDOW of_key AS (PARTITION BY {key} ORDER BY seq)
        ), cut AS (
            SELECT *, lead(seq) OVER (PARTITION BY {key} ORDER BY seq) AS until FROM marked WHERE cuts
        )
        SELECT {", ".join(kinds)}, seq AS __START_AT, until AS __END_AT FROM cut WHERE NOT leaves
    """


def sequences(landed: Path, table: Table) -> str:
    """Return a query for the sequence of every event that has landed."""
    return f"SELECT json ->> '$.pg_sequence' AS seq FROM {_lines(landed, table)}"


def operations(landed: Path, table: Table) -> str:
    """Return a query for how many events of each operation have landed."""
    return f"SELECT json ->> '$.pg_op' AS op, count(*) AS events FROM {_lines(landed, table)} GROUP BY 1"


def _lines(landed: Path, table: Table) -> str:
    return f"read_ndjson_objects('{landed}/{table.name}/*/*.jsonl', maximum_object_size = 100000000)"


def _type(kind: str) -> str:
    return _TYPES.get(kind, kind)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
