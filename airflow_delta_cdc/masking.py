"""Errors and texts for an XCom, without the secrets that Airflow knows.

A listener imports this module in each process of Airflow, so it imports nothing of the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import redact

if TYPE_CHECKING:
    from delta_cdc.core.errors import DeltaCdcError


def masked(text: str) -> str:
    """Return a text without the secrets that Airflow knows, for an XCom: Airflow itself masks only logs."""
    return str(redact(text))


def for_xcom(error: DeltaCdcError, most: int) -> dict[str, str]:
    """Return an error as a dict, with the message and the remedy masked and shortened.

    Only these two: a shortened class, or approval, would be another one.

    :param most: the most characters of each
    """

    def shown(text: str) -> str:
        # First: a shortened text could end in a part of a secret, which nothing masks any more.
        text = masked(text)
        return text if len(text) <= most else f"{text[:most]}… (see the log)"

    texts = {"message": shown(error.message), "remedy": shown(error.remedy)}
    return {**error.to_dict(), **texts}
