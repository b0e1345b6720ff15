"""Maintenance tags, which maintenance commits record in ``commitInfo.userMetadata``.

A tag alone proves nothing, because the conf that writes it leaks into later commits of the same session: the
commit's operation must match it.
"""

from __future__ import annotations

import json
from typing import Any

from delta_cdc.core import codec

#: The conf that writes ``userMetadata``.
CONF = "spark.databricks.delta.commitInfo.userMetadata"
_MARK, _FORMAT = "delta_cdc_maintenance", 1


def written(kind: str, **values: Any) -> str:
    """Return the text of a maintenance tag.

    :param kind: ``expire`` (events below the allowed lateness were deleted), ``erase`` (rows of erased keys
        were deleted), ``optimize`` or ``shadow`` (two targets were compared)
    :param values: JSON values
    """
    return json.dumps({_MARK: _FORMAT, "kind": kind, **values}, sort_keys=True, separators=(",", ":"))


def read(text: str | None, kind: str) -> dict[str, Any] | None:
    """Return the content of a maintenance tag of one kind; None if the text is not such a tag."""
    if not text or _MARK not in text:
        return None
    try:
        data = codec.parsed(text)
    except ValueError:
        return None
    if not isinstance(data, dict) or data.get(_MARK) != _FORMAT or data.get("kind") != kind:
        return None
    return data
