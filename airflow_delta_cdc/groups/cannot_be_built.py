"""The task of a DAG that shows why the DAG of a group cannot be built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from airflow.sdk import Context


class CannotBeBuiltOperator(BaseOperator):
    """Fail with the error of the group's DAG.

    :param error: the error, for people
    :param kwargs: see Airflow's :class:`BaseOperator`
    """

    def __init__(self, *, error: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error = error

    def execute(self, context: Context) -> None:
        """Raise the error.

        :raises InvalidConfiguration: always
        """
        raise InvalidConfiguration(
            f"The DAG {self.dag_id} cannot be built: {self.error}",
            remedy="correct the configuration or its callbacks; the DAG then has its own tasks again.",
        )
