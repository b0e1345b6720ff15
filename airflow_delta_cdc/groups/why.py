"""The task that explains the rows of a group's targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc.operators.why import DeltaWhyOperator, the_only
from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context


class ExplainRowOperator(DeltaWhyOperator):
    """Explain the row of one key in a target of a group.

    :param tables: arguments of the group's tables. The task renders the templates of the chosen table only,
        because those of another one may fail
    :param group: the group's ``dag_id``
    :param kwargs: see :class:`DeltaWhyOperator`
    """

    template_fields = ("tables", "group", *DeltaWhyOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"tables": "json"}

    def __init__(self, *, tables: Sequence[Mapping[str, Any]], group: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.group = group

    def render_template(self, content: Any, *rest: Any, **how: Any) -> Any:
        """Render a template; the tables stay as they are."""
        return content if content is self.tables else super().render_template(content, *rest, **how)

    def arguments_of_table(self, context: Context) -> Mapping[str, Any]:
        """Return the arguments of the chosen table, with rendered templates.

        :raises InvalidConfiguration: the group has no table of this name
        """
        name = arguments.pipeline("pipeline", self.pipeline)
        known = [table for table in self.tables if name in (None, table["pipeline"])]
        if not known:
            raise InvalidConfiguration(
                f"The group {self.group} has no pipeline {name!r}.",
                remedy=f"name one of {', '.join(table['pipeline'] for table in self.tables[:10])}.",
                argument="pipeline",
            )
        found: Mapping[str, Any] = self.render_template(
            dict(the_only(known, f"The group {self.group}")), context
        )
        return found
