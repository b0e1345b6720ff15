"""What events of assets tell about what was announced."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time import comms, task_runner

from airflow_delta_cdc.announced import announced, announced_by_group

if TYPE_CHECKING:
    from collections.abc import Mapping


class Supervisor:
    """Answers as Airflow does: the newest events come first, no more than the request allows.

    :param extras: of all events, newest first
    """

    def __init__(self) -> None:
        self.extras: list[Any] = []
        self.requests: list[tuple[str | None, int | None]] = []
        self.broken = False

    def send(self, message: comms.GetAssetEventByAssetAlias | comms.GetAssetEventByAsset) -> Any:
        assert message.ascending is False
        is_alias = isinstance(message, comms.GetAssetEventByAssetAlias)
        self.requests.append((message.alias_name if is_alias else message.name, message.limit))
        if self.broken:
            raise AirflowRuntimeError(comms.ErrorResponse(error=comms.ErrorType.API_SERVER_ERROR))
        asset = {"name": "a", "uri": "file:///a", "group": "g", "extra": {}}
        events = [
            {
                "id": number,
                "timestamp": datetime.now(UTC),
                "extra": extra,
                "asset": asset,
                "created_dagruns": [],
            }
            for number, extra in enumerate(self.extras[: message.limit])
        ]
        return comms.AssetEventsResult.model_validate({"asset_events": events})


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    made = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", made, raising=False)
    return made


def of_target(seal: Any, table_id: str = "t", uri: str = "/t") -> dict[str, Any]:
    return {"seal": seal, "target_table": uri, "target_table_id": table_id}


def of_log(seal: Any) -> dict[str, Any]:
    return {"seal": seal, "log_table": "/l", "log_table_id": "l"}


def newest(table: str = "target", table_id: str = "t", known: Mapping[str, int] | None = None) -> int | None:
    return announced("p", known or {}, table, f"/{table_id}", table_id, 7)


def test_the_newest_event_of_a_table_counts(supervisor: Supervisor) -> None:
    # An older number after a newer one: the pipeline's table was put back from a copy of its files.
    supervisor.extras = [of_target(4), of_target(6), of_log(9)]
    assert (newest(), newest("log", "l")) == (4, 9)
    assert supervisor.requests[0] == ("delta_cdc:p", 2)
    supervisor.requests.clear()
    supervisor.extras = [of_log(number) for number in range(100, 50, -1)] + [of_target(6)]
    assert newest() == 6
    assert [most for _, most in supervisor.requests] == [2, 200], "it is behind many of the log"


def test_a_known_number_needs_no_request(supervisor: Supervisor) -> None:
    supervisor.extras = [of_target(6)]
    assert newest(known={"target": 7}) == 7
    assert supervisor.requests == []
    assert newest(known={"target": 5, "log": 7}) == 6


@pytest.mark.parametrize(
    "extras",
    [
        [],
        [of_target(6, "dropped")],
        [of_target(6, uri="/copy")],
        [of_log(6)],
        [None, {}],
        [of_target("6")],
        [of_target(None)],
    ],
)
def test_what_announces_nothing(supervisor: Supervisor, extras: list[Any]) -> None:
    """No event, one of a table that is gone, of a copy, and of the log, and events that others made."""
    supervisor.extras = extras
    assert newest() is None


def test_if_airflow_does_not_answer_nothing_is_known(supervisor: Supervisor) -> None:
    supervisor.broken = True
    assert (newest(), announced_by_group("g")) == (None, {})


@pytest.mark.parametrize(
    ("extra", "seals"),
    [
        ({"tables": {"p": {"seals": {"target": 3, "log": 4}}, "q": {}}}, {"p": {"target": 3, "log": 4}}),
        ({"tables": {"p": {"seals": {"target": "3"}}, "q": {"seals": 1}, "r": 2}}, {"p": {}}),
        ({"tables": []}, {}),
        (None, {}),
    ],
)
def test_the_seals_of_a_group(supervisor: Supervisor, extra: Any, seals: dict[str, Any]) -> None:
    supervisor.extras = [extra, {"tables": {"p": {"seals": {"target": 1}}}}]
    assert announced_by_group("g") == seals
    assert supervisor.requests == [("delta_cdc:group:g", 1)]
