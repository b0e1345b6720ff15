"""Convert trees to groups and tables: check names and types; the most specific setting wins."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.config import combine, models, shadows, sources, values
from delta_cdc.config.combine import is_template
from delta_cdc.config.configuration import Configuration, Group, Table
from delta_cdc.config.findings import Place, nearest, shown
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.groups import ON_CHANGE, WATCHABLE_REMEDY, dag_ids
from delta_cdc.core.options import APPLY, INGEST
from delta_cdc.core.rules import OUTSIDE, check_pipeline, nested

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delta_cdc.config.findings import Findings
    from delta_cdc.config.tree import Node

_TOP = ("defaults", "groups", "pipelines")
#: Options of one run, from its form or the command line: a configuration would set them for every run.
_OF_A_RUN = ("tables", *(name for name, one in {**INGEST, **APPLY}.items() if one.of_run), "repair")
_INGEST_ONLY = tuple(name for name in INGEST if name not in APPLY and name != "log")
#: What the name of an asset of a group begins with, where that of a pipeline is (airflow_delta_cdc.assets).
_OF_GROUPS = "group:"
_DAG_ID = re.compile(r"[A-Za-z0-9_.\-]{1,200}")


@dataclass
class _Section:
    """The settings in one place: for all pipelines, for a group, or for one pipeline.

    :param place: the place of its name
    :param given: the values of its keys
    :param places: the places of its keys
    :param nodes: the trees of the values
    :param wrong: keys with invalid values
    :param unknown: whether it has unknown keys, so that the intended keys may be missing
    :param sources: the sources of a pipeline that has several
    """

    place: Place
    given: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)
    unknown: bool = False
    sources: dict[str, _Section] = field(default_factory=dict)

    def take(self, name: str, place: Place, value: Node) -> None:
        """Store the value of a key. An empty value counts, too: it overrides less specific settings."""
        self.places[name] = place
        self.nodes[name] = value
        if value.is_reported:
            self.wrong.add(name)
        else:
            self.given[name] = value.plain(as_written=name in models.OF_TEXTS)


def resolved(roots: list[Node], files: tuple[str, ...], findings: Findings) -> Configuration:
    """Return the configuration that some trees define together.

    :param findings: receives the problems; if there are any, the result is unusable
    """
    return _Resolver(findings).configuration(roots, files)


class _Resolver:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._defaults = _Section(Place(""))
        self._groups: dict[str, _Section] = {}
        self._pipelines: dict[str, _Section] = {}
        self._misnamed: set[str] = set()

    def configuration(self, roots: list[Node], files: tuple[str, ...]) -> Configuration:
        """Return all groups."""
        before = len(self._findings)
        for root in roots:
            self._collect(root)
        if not self._pipelines and len(self._findings) == before and (roots or not before):
            place = roots[0].place if roots else Place(files[0] if files else "mapping")
            remedy = "write pipelines:, and below it a name and what it moves."
            self._findings.add(place, "There is no pipeline.", remedy)
        return Configuration(groups=self._all_groups())

    # -- collect the places -----------------------------------------------------------------------
    def _collect(self, root: Node) -> None:
        if root.value is None:
            return
        if not root.is_mapping:
            self._findings.add(
                root.place, "It is no mapping.", f"write {', '.join(_TOP)}, each with a colon."
            )
            return
        for name, node in root.value.items():
            if name not in _TOP:
                message = f"{shown(name)} is no key of a configuration."
                self._findings.add(root.keys[name], message, nearest(name, _TOP))
            elif node.value is not None and not node.is_mapping:
                self._findings.add(node.place, f"{name} is no mapping.", "write names, each with a colon.")
        parts = {name: root.value.get(name) for name in _TOP}
        readable = {name: node for name, node in parts.items() if node is not None and node.is_mapping}
        if "defaults" in readable:
            self._take_defaults(readable["defaults"])
        for name, into in (("groups", self._groups), ("pipelines", self._pipelines)):
            if name in readable:
                self._take_all(name, readable[name], into)

    def _take_defaults(self, node: Node) -> None:
        section = self._section(node, node.place, "defaults", models.default_keys())
        defaults = self._defaults
        defaults.wrong |= section.wrong
        for name in node.keys:
            if name in defaults.places and defaults.places[name].file != node.keys[name].file:
                self._twice("The default", name, node.keys[name], defaults.places[name])
        defaults.given.update(section.given)
        defaults.places.update(section.places)
        defaults.nodes.update(section.nodes)

    def _take_all(self, kind: str, node: Node, into: dict[str, _Section]) -> None:
        kind_name = kind.removesuffix("s")
        for name, body in node.value.items():
            place = node.keys[name]
            if name in into:
                self._twice(f"The {kind_name}", name, place, into[name].place)
            elif body.value is not None and not body.is_mapping:
                message = f"The {kind_name} {shown(name)} is no mapping."
                self._findings.add(body.place, message, "write its keys below it, each with a colon.")
                into[name] = _Section(place, unknown=True)
            else:
                valid_keys = models.group_keys() if kind == "groups" else models.pipeline_keys()
                into[name] = self._section(body, place, f"the {kind_name} {name}", valid_keys)
                self._check_name(kind_name, name, place)

    def _twice(self, description: str, name: str, place: Place, first_place: Place) -> None:
        message = f"{description} {shown(name)} is written twice, first in {first_place}."
        self._findings.add(place, message, "keep one of them, or give one another name.")

    def _check_name(self, kind: str, name: str, place: Place) -> None:
        count_before = len(self._findings)
        if kind == "pipeline":
            try:
                check_pipeline(name)
            except InvalidConfiguration as error:
                self._findings.add(place, error.message, error.remedy)
            if name.startswith(_OF_GROUPS):
                message = f"The pipeline name {name!r} cannot be used."
                remedy = f"remove {_OF_GROUPS!r}: in Airflow, it marks the asset of a group."
                self._findings.add(place, message, remedy)
        elif not _DAG_ID.fullmatch(name):
            message = f"The group's name {shown(name)} cannot be used."
            self._findings.add(place, message, "use 1 to 200 letters, digits, '_', '-' or '.'.")
        if len(self._findings) > count_before:
            self._misnamed.add(name)
            # The engine's checks would report it again.
            self._pipelines.get(name, _Section(place)).unknown = True

    # -- the keys of one place --------------------------------------------------------------------
    def _section(self, node: Node, place: Place, where: str, valid_keys: tuple[str, ...]) -> _Section:
        section = _Section(place)
        if node.value is None:
            return section
        for name, value in node.value.items():
            if name not in valid_keys:
                section.unknown = True
                self._unknown(name, node.keys[name], where, valid_keys)
            elif name == models.SOURCES:
                self._take_sources(section, node.keys[name], value, where)
            elif name in models.IN_GROUPS:
                self._take_group(section, name, value, f"{name} of {where}")
            else:
                section.take(name, node.keys[name], value)
        section.wrong |= values.check(section.given, section.nodes, where, self._findings)
        for name in section.wrong:
            section.given.pop(name, None)
        return section

    def _take_sources(self, section: _Section, place: Place, node: Node, where: str) -> None:
        """Read the sources of a pipeline that has several."""
        section.places[models.SOURCES] = place
        if not node.is_mapping or not node.value:
            section.unknown = True
            self._findings.add(
                node.place, f"sources of {where} has no source.", "write names, each with a colon."
            )
            return
        for name, body in node.value.items():
            of_source, at = f"the source {name} of {where}", node.keys[name]
            if problem := sources.name_problem(name):
                section.unknown = True
                self._findings.add(at, f"The name {shown(name)} cannot be used.", problem)
            elif not body.is_mapping:
                section.unknown = True
                message = f"The source {shown(name)} of {where} is no mapping."
                self._findings.add(body.place, message, "write its keys below it, each with a colon.")
            else:
                section.sources[name] = self._section(body, at, of_source, models.SOURCE_KEYS)

    def _take_group(self, section: _Section, group: str, node: Node, where: str) -> None:
        """Put the options of a group into a section; an empty group sets all its options to empty values."""
        keys = models.IN_GROUPS[group]
        if node.is_mapping:
            for name, value in node.value.items():
                if name in keys:
                    section.take(name, node.keys[name], value)
                else:
                    section.unknown = True
                    self._unknown(name, node.keys[name], where, keys)
        elif node.value is None or node.is_reported:
            for name in keys:
                section.take(name, node.place, node)
        else:
            section.wrong.update(keys)
            remedy = f"give a mapping with keys among {', '.join(keys)}."
            self._findings.add(node.place, f"{where} is {shown(node.value)}.", remedy)

    def _unknown(self, name: str, place: Place, where: str, valid_keys: tuple[str, ...]) -> None:
        message = f"{shown(name)} is no key of {where}."
        if name in _OF_A_RUN:
            remedy = "remove it: it applies to one run; set it in the trigger form."
        elif name == "<<":
            remedy = "put what several pipelines share into defaults or a group."
        elif name == "pipeline":
            remedy = "remove it: the key above these settings is the pipeline's name."
        elif name in _TOP:
            remedy = f"write {name}: at the left margin. A pipeline names its group with group:."
        elif name in INGEST and INGEST[name].group:
            remedy = f"write it under {INGEST[name].group}:."
        else:
            remedy = nearest(name, valid_keys)
        self._findings.add(place, message, remedy)

    # -- groups -----------------------------------------------------------------------------------
    def _all_groups(self) -> tuple[Group, ...]:
        members: dict[str, list[Table]] = {}
        alone: dict[str, Group] = {}
        for name, section in sorted(self._pipelines.items()):
            group = self._nearest("group", section)
            if group is not None:
                self._check_member(name, group, section)
                members.setdefault(str(group), []).extend(
                    self._tables(name, section, self._groups.get(group))
                )
            else:
                tables = tuple(self._tables(name, section, None))
                settings = self._settings(name, section)
                alone[name] = Group(name, settings, tables, place=str(section.place), is_alone=True)
        for name in sorted(set(alone) & set(self._groups)):
            message = f"The pipeline {name} is in no group, but a group has the same name."
            remedy = f"add group: {name} to the pipeline, or rename one of them."
            self._findings.add(self._pipelines[name].place, message, remedy)
        for name, section in self._groups.items():
            if name in members:
                settings = self._settings(name, section)
                alone[name] = Group(name, settings, tuple(members[name]), place=str(section.place))
        groups = tuple(alone[name] for name in sorted(alone))
        self._check_empty(members)
        self._check_dag_ids(groups)
        self._check_places(groups)
        self._check_folders(groups)
        self._check_watched(groups)
        self._check_settings(groups)
        self._check_applications(groups)
        return shadows.linked(groups, self._shadow_is_wrong)

    def _shadow_is_wrong(self, pipeline: str, problem: str, remedy: str) -> None:
        section = self._section_of(pipeline)
        place = section.places.get("shadow_of", section.place)
        self._findings.add(place, f"The pipeline {pipeline}: {problem}", remedy)

    def _check_empty(self, members: Mapping[str, object]) -> None:
        if not self._pipelines or set(members) - set(self._groups):
            # A missing or misplaced pipeline is already reported, and may belong to the empty group.
            return
        for name, section in self._groups.items():
            if name not in members and name not in self._pipelines and name not in self._misnamed:
                message = f"The group {shown(name)} has no pipeline."
                self._findings.add(
                    section.place, message, f"write group: {name} in its pipelines, or remove it."
                )

    def _check_places(self, groups: tuple[Group, ...]) -> None:
        """Report two pipelines with one table: the second one has no watermark for the rows of the first."""
        owners: dict[str, tuple[str, Table]] = {}
        for table in (table for group in groups for table in group.tables):
            for key in ("log", "target"):
                location = table.arguments.get(key)
                if location is None or combine.is_template(location):
                    continue
                of_first, first = owners.setdefault(combine.same_place(location), (key, table))
                are_of_one = first.collects and table.collects and self._owner(first) == self._owner(table)
                if first != table and not are_of_one:
                    section = self._section_of(table.pipeline)
                    both = f"The pipelines {first.pipeline} and {table.pipeline} have the same {key}"
                    if of_first != key:
                        both = (
                            f"The {of_first} of {first.pipeline} and the {key} of {table.pipeline} are the "
                            "same table"
                        )
                    message = f"{both}, {shown(location)}."
                    place = section.places.get(key, section.place)
                    self._findings.add(place, message, "give each pipeline its own table.")

    def _check_folders(self, groups: tuple[Group, ...]) -> None:
        """Report a table in the folder of another pipeline's: a VACUUM of that one would delete its files.

        The two tables of one pipeline are reported with its other arguments.
        """
        folders: list[tuple[str, str, Table]] = []
        for table in (table for group in groups for table in group.tables):
            keys = ("log", "target") if "log" in table.arguments else ("source", "target")
            for key in (key for key in keys if isinstance(table.arguments.get(key), str)):
                location = str(table.arguments[key])
                if not combine.is_template(location):
                    folders.append((f"{combine.same_place(location)}/", key, table))
        outer: tuple[str, str, Table] | None = None
        for folder in sorted(folders, key=lambda one: one[0]):
            place, key, table = folder
            if outer is None or not place.startswith(outer[0]):
                outer = folder
            elif place != outer[0] and table.pipeline != outer[2].pipeline:
                section = self._section_of(table.pipeline)
                self._findings.add(
                    section.places.get(key, section.place),
                    nested(f"The {key} of {table.pipeline}", f"the {outer[1]} of {outer[2].pipeline}"),
                    OUTSIDE,
                )

    def _owner(self, table: Table) -> str:
        """Return the pipeline that has this one as one of its sources; "" if none has."""
        owner, _, source = table.pipeline.rpartition(".")
        return owner if owner in self._pipelines and source in self._pipelines[owner].sources else ""

    def _section_of(self, pipeline: str) -> _Section:
        """Return the section of a pipeline, or that of the pipeline that has it as one of its sources."""
        if pipeline in self._pipelines:
            return self._pipelines[pipeline]
        owner, _, source = pipeline.rpartition(".")
        return self._pipelines[owner].sources[source]

    def _check_watched(self, groups: tuple[Group, ...]) -> None:
        for group in groups:
            section = self._groups.get(group.name) or self._pipelines[group.name]
            for table in group.tables if group.settings.get("schedule") == ON_CHANGE else ():
                if problem := combine.unwatchable(table) or _templated(group.settings):
                    message = f"The source of {table.pipeline} {problem}, and schedule is on_change."
                    place = section.places.get("schedule") or self._defaults.places["schedule"]
                    self._findings.add(place, message, WATCHABLE_REMEDY)

    def _check_applications(self, groups: tuple[Group, ...]) -> None:
        """Report an application of its own for one of two pipelines of which one applies the other's log.

        Nothing makes one application of a run wait for another: the apply would always be one run late.
        """
        for group in groups:
            writers: dict[str, list[Table]] = {}
            for table in group.tables:
                if table.appends_to is not None:
                    writers.setdefault(combine.same_place(table.appends_to), []).append(table)
            for table in group.tables:
                for writer in writers.get(combine.same_place(str(table.arguments.get("source"))), ()):
                    self._check_application(writer, table)

    def _check_application(self, writer: Table, reader: Table) -> None:
        alone = writer if writer.own_application else reader
        if alone.own_application:
            section = self._section_of(alone.pipeline)
            self._findings.add(
                section.places.get("own_application", section.place),
                f"The pipeline {alone.pipeline} has own_application, but one run writes the log of "
                f"{writer.pipeline} and applies it in {reader.pipeline}.",
                f"remove it: both share one application. Or give {reader.pipeline} a group of its own, with "
                "schedule: on_change.",
            )

    def _nearest(self, key: str, *sections: _Section | None) -> Any:
        for section in (*sections, self._defaults):
            if section is not None and key in section.given:
                return section.given[key]
        return None

    def _check_member(self, name: str, group: Any, section: _Section) -> None:
        if group not in self._groups:
            place = section.nodes.get("group", self._defaults.nodes.get("group"))
            message = f"The pipeline {name} is in the group {shown(group)}, which does not exist."
            remedy = (
                nearest(str(group), self._groups) if self._groups else f"write groups: {{{group}: {{}}}}."
            )
            self._findings.add(place.place if place is not None else section.place, message, remedy)
        for key in section.places:
            if key in models.dag_keys():
                message = f"{key} is given for the pipeline {name}, which runs in the group {group}."
                remedy = f"move it to groups: {group}: it configures the group's DAG, tasks or application."
                self._findings.add(section.places[key], message, remedy)

    def _settings(self, name: str, section: _Section) -> dict[str, Any]:
        settings = {}
        for key in models.dag_keys():
            value = self._nearest(key, section)
            is_given = key in section.given or key in self._defaults.given
            if value is not None or (key == "schedule" and is_given):
                settings[key] = values.setting(key, value)
        if isinstance(settings.get("dag_id"), str):
            settings["dag_id"] = settings["dag_id"].replace("{name}", name)
        return settings

    def _check_settings(self, groups: tuple[Group, ...]) -> None:
        """Report settings that fit no other one: an error in a DAG file would stop the DAGs of all groups."""
        manifests: dict[str, str] = {}
        for group in groups:
            settings = group.settings
            for key, problem, remedy in _unfit(settings):
                self._setting_is_wrong(group, key, f"The group {group.name}: {problem}", remedy)
            manifest = settings.get("manifest")
            if manifest:
                other = manifests.setdefault(combine.same_place(manifest), group.name)
                if other != group.name:
                    problem = f"The groups {other} and {group.name} have the same manifest."
                    self._setting_is_wrong(group, "manifest", problem, "give each group its own file.")

    def _setting_is_wrong(self, group: Group, key: str, problem: str, remedy: str) -> None:
        section = self._groups.get(group.name) or self._pipelines[group.name]
        place = section.places.get(key) or self._defaults.places.get(key) or section.place
        self._findings.add(place, problem, remedy)

    def _check_dag_ids(self, groups: tuple[Group, ...]) -> None:
        taken: dict[str, str] = {}
        for group in groups:
            section = self._groups.get(group.name) or self._pipelines[group.name]
            place = section.places.get("dag_id") or section.place
            dag_id = str(group.settings.get("dag_id", group.name))
            if not _DAG_ID.fullmatch(dag_id) and group.name not in self._misnamed:
                message = f"The DAG's id {shown(dag_id)} cannot be used."
                remedy = "set dag_id, or the name, to 1 to 200 letters, digits, '_', '-' or '.'."
                self._findings.add(place, message, remedy)
            for one in dag_ids(dag_id, group.settings):
                if one in taken:
                    message = f"{group.name} and {taken[one]} would both be the DAG {one}."
                    remedy = "give one of them another name, or put {name} into dag_id."
                    self._findings.add(place, message, remedy)
                taken[one] = group.name

    # -- tables -----------------------------------------------------------------------------------
    def _tables(self, name: str, section: _Section, group: _Section | None) -> Iterator[Table]:
        """Yield the pipelines of a section: one, or one per source and the one that applies their changes."""
        layers = [layer for layer in (self._defaults, group, section) if layer is not None]
        values_by_key: dict[str, Any] = {}
        places: dict[str, Place] = {}
        for key in models.table_keys():
            for layer in layers:
                if key in layer.given:
                    values_by_key[key], places[key] = layer.given[key], layer.places[key]
        arguments = {key: value for key, value in values_by_key.items() if value is not None}
        # Skip errors caused by an earlier error.
        wrong = section.unknown or any(layer.wrong & set(models.table_keys()) for layer in layers)
        if models.SOURCES in section.places:
            yield from self._of_sources(name, section, arguments, places, wrong=wrong)
            return
        if "log" not in arguments:
            self._refuse_ingest_keys(name, section)
            arguments = {key: value for key, value in arguments.items() if key not in _INGEST_ONLY}
        has_own_application = arguments.pop("own_application", False) is True
        yield self._checked(
            Table(
                pipeline=name,
                arguments={"pipeline": name, **arguments},
                own_application=has_own_application,
                place=str(section.place),
            ),
            section,
            places,
            wrong=wrong,
        )

    def _of_sources(
        self,
        name: str,
        section: _Section,
        arguments: dict[str, Any],
        places: dict[str, Place],
        *,
        wrong: bool,
    ) -> Iterator[Table]:
        """Yield the pipelines of a section with several sources."""
        kinds = {
            one.given.get("source_kind", arguments.get("source_kind")) for one in section.sources.values()
        }
        found = list(sources.problems(arguments, section.given, has_events="change_log" in kinds))
        for argument, problem, remedy in found:
            place = section.places.get(argument, section.place)
            self._findings.add(place, f"The pipeline {name} {problem}", remedy)
        if found or "target" not in arguments:
            return
        for source, own in section.sources.items():
            if own.given.get("removed") is True:
                continue
            given = sources.collecting(name, source, arguments, own.given)
            table = Table(pipeline=given["pipeline"], arguments=given, place=str(own.place))
            skip = wrong or own.unknown or bool(own.wrong)
            if table.pipeline in self._pipelines:
                message = f"The source {source} of {name} is the pipeline {table.pipeline}, which exists."
                self._findings.add(own.place, message, "give one of them another name.")
            problem = "" if skip else sources.order_problem(given)
            if problem:
                self._findings.add(
                    own.places.get("sequence_by", places.get("sequence_by", own.place)),
                    f"The pipeline {table.pipeline} {problem}",
                    "name a column that orders the changes of all sources, such as the time of the update.",
                )
            yield self._checked(table, own, {**places, **own.places}, wrong=skip or bool(problem))
        table = Table(
            pipeline=name,
            arguments=sources.applying(name, arguments),
            place=str(section.place),
            sources=tuple(sources.pipeline_of(name, source) for source in section.sources),
            removed=tuple(
                str(one.given["source"])
                for one in section.sources.values()
                if one.given.get("removed") is True and one.given.get("source")
            ),
        )
        yield self._checked(table, section, places, wrong=wrong)

    def _checked(self, table: Table, section: _Section, places: dict[str, Place], *, wrong: bool) -> Table:
        """Return a pipeline, after the engine's own checks of its arguments.

        :param wrong: an earlier error prevents them
        """
        if wrong:
            self._findings.is_partial = True
        elif self._is_whole(table, section.place):
            inherited = {key for key, place in places.items() if section.places.get(key) != place}
            combine.check(table, places, section.place, self._findings, inherited=inherited)
        return table

    def _refuse_ingest_keys(self, name: str, section: _Section) -> None:
        for key in section.given:
            if key in _INGEST_ONLY and section.given[key] is not None:
                message = f"{key} is given for the pipeline {name}, which has no log."
                remedy = "add log: with the path of the change log, or remove it."
                self._findings.add(section.places[key], message, remedy)

    def _is_whole(self, table: Table, place: Place) -> bool:
        arguments = table.arguments
        missing = [] if "source" in arguments else ["source"]
        missing += [] if "target" in arguments or "log" in arguments else ["target"]
        for key in missing:
            message = f"The pipeline {table.pipeline} has no {key}."
            self._findings.add(place, message, f"write {key}: with a path, a URI or a catalog name.")
        return not missing


def _templated(settings: Mapping[str, Any]) -> str:
    """Return why no watcher can use the settings of a group; "" if it can."""
    for name in ("delta_conn_id", "storage_options"):
        value = settings.get(name)
        texts = value.values() if isinstance(value, dict) else [value]
        if any(isinstance(text, str) and is_template(text) for text in texts):
            return f"has to be read with {name}, which contains a template that only a task renders"
    return ""


def _unfit(settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the key, the problem and the remedy of settings that do not go together.

    The call of ``build_dags`` may add settings, so a missing one is no problem.
    """
    if settings.get("schedule") == "@continuous" and settings.get("max_active_runs", 1) > 1:
        yield "max_active_runs", "a DAG with schedule @continuous has one run at once.", "remove it."
