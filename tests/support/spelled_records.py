"""Records of keys that are no valid events, in the formats of sources."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from delta_cdc.core.spellings import folded, spellings

if TYPE_CHECKING:
    from delta_cdc.core.spellings import Kind

#: The text of a key's value, the kind of its type, and a record.
OF_KEYS: list[tuple[str, Kind, str]] = [
    ("170017", "number", '{"op": "?", "id": 170017}'),
    ("170017", "number", '{"op": "?", "id": "170017"}'),
    ("170017", "number", '{"id": 170017.0}'),
    ("170017", "number", '{"id": 1.70017E5}'),
    ("170017", "number", '{"id": 1.70017e+05}'),
    ("170017", "number", "x,00170017,"),
    # Debezium, decimal.handling.mode = precise: the bytes of 170017, and of 170017.00.
    ("170017", "number", '{"id": "Apgh"}'),
    ("170017", "number", '{"id": "AQNs5A=="}'),
    ("17.5", "number", '{"k": 17.500}'),
    ("17.5", "number", '{"k": 1.75E+1}'),
    ("17.50", "number", '{"k": 17.5}'),
    ("1E+2", "number", "100;x"),
    ("-0.5", "number", "x,-0.50,"),
    ("7", "number", "a\t007\tb"),
    ("NaN", "number", '{"k": "NaN"}'),
    ("-2", "number", '{"k": "/g=="}'),
    ("Müller", "text", '{"name": "M\\u00fcller"}'),
    ("Müller", "text", '{"name": "M\\u00FCller"}'),
    ("Müller", "text", '{"after": "{\\"name\\": \\"M\\\\u00fcller\\"}"}'),
    ("Müller", "text", "MÜLLER;MüLLER"),
    ('6" pipe', "text", 'x,"6"" pipe",y'),
    ("a/b", "text", '{"k": "a\\/b"}'),
    ("a\nb", "text", '{"k": "a\\nb"}'),
    ("a\nb", "text", 'x,"a\nb",y'),
    ("Müller", "text", '{"k": "TcO8bGxlcg=="}'),
    ("2024-02-29", "date", '{"d": 19782}'),
    ("2024-02-29", "date", '{"d": 1709164800000}'),
    ("2024-02-29", "date", '{"d": "2024-02-29T00:00:00Z"}'),
    ("2024-02-29 01:02:03.0004", "timestamp", '{"d": "2024-02-29T01:02:03.000400Z"}'),
    ("2024-02-29 01:02:03.0004", "timestamp", '{"d": 1709168523000400}'),
    ("2024-02-29 01:02:03", "timestamp", '{"d": 1709168523}'),
    ("00FFAB", "binary", '{"k": "00ffab"}'),
    ("00FFAB", "binary", '{"k": "AP+r"}'),
]


def mentions(record: str, text: str, kind: Kind) -> bool:
    """Return what SQL must find, by Python alone."""
    given = folded(record)
    return any(
        re.search(rf"(?<![0-9]){one.text}(?![0-9])", given) if one.is_whole else one.text in given
        for one in spellings(text, kind)
    )
