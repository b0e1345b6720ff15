"""A rule that somebody put on a change log: the error names it and the events; nothing is lost meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.errors import TargetConstraintViolated
from tests.support.deliveries import Deliveries, event, expected
from tests.support.engine import versions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_a_rule_of_a_change_log(spark: SparkSession, tmp_path: Path) -> None:
    flow = Deliveries(spark, tmp_path)
    first, second = event("I", 1, 1, name="a", amount=1), event("I", 2, 4, name="b", amount=99)
    flow.deliver("a.json", [first])
    flow.ingest()
    spark.sql(f"ALTER TABLE delta.`{flow.log}` ADD CONSTRAINT small CHECK (amount < 50)")
    before = versions(str(flow.log))
    flow.deliver("b.json", [second])
    with pytest.raises(TargetConstraintViolated) as raised:
        flow.ingest()
    for word in (
        "CHECK constraint small",
        "- amount : 99",
        str(flow.log),
        "rule: id = 4. Nothing was written",
    ):
        assert word in raised.value.message
    assert versions(str(flow.log)) == before
    # The batch is recorded: it is taken as soon as the rule lets it in.
    spark.sql(f"ALTER TABLE delta.`{flow.log}` DROP CONSTRAINT small")
    assert flow.ingest().counts["events"] == 1
    assert flow.events() == expected([first, second])
