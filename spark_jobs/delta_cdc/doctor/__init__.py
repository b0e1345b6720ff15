"""Diagnose an installation, and name remedies.

Each check has a time limit, reports its result and, if there is a problem, names a remedy in one sentence.
The checks delete their test data and show no secret. ``delta-cdc doctor`` is the command.
``airflow_delta_cdc.doctor`` runs the same checks, and looks up Airflow's connections.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delta_cdc.core.secrets import secrets
from delta_cdc.core.storage_options import is_s3
from delta_cdc.doctor import machine, store
from delta_cdc.doctor.application import Spark
from delta_cdc.doctor.report import Check, Result, examined, hidden, print_report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Check", "Questions", "Result", "examined", "hidden", "print_report"]

#: Seconds for each check. On a busy machine, Spark needs a minute.
DEFAULT_TIMEOUT = 120.0


@dataclass(frozen=True)
class Questions:
    """The checks requested beyond those of the machine itself.

    :param storage: URI or path of a folder for a round trip, and for the table of a MERGE
    :param storage_options: options of the store, with delta-rs's names; None uses the environment's
    :param tables: paths or URIs of tables
    :param masters: master URLs
    :param remotes: URLs of Spark Connect servers, with their parameters
    :param confs: confs of Spark; they override ours
    :param kafka: check the JARs for reading topics
    :param s3: check the JARs for tables on S3; implied if a location is on S3
    :param timeout: seconds for each check
    """

    storage: str | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    tables: Sequence[str] = ()
    masters: Sequence[str] = ()
    remotes: Sequence[str] = ()
    confs: Mapping[str, str] = field(default_factory=dict, repr=False)
    kafka: bool = False
    s3: bool = False
    timeout: float = DEFAULT_TIMEOUT

    @property
    def secrets(self) -> set[str]:
        """Return the secrets of the settings and of the environment, which no output may show."""
        server_parameters = {
            name: value
            for url in self.remotes
            for name, _, value in (part.partition("=") for part in url.split(";")[1:])
        }
        sources = (os.environ, self.storage_options, self.confs, server_parameters)
        return {secret for options in sources for secret in secrets(options)}

    def checks(self) -> list[Check]:
        """Return all checks, the fast ones first."""
        places = (*self.tables, *((self.storage,) if self.storage else ()))
        return [
            *machine.checks(
                timeout=self.timeout, kafka=self.kafka, s3=self.s3 or any(is_s3(place) for place in places)
            ),
            *self.checks_of_storage(),
            *(check for url in (*self.masters, *self.remotes) for check in self.checks_of_spark(url)),
        ]

    def checks_of_storage(self) -> list[Check]:
        """Return the checks of the storage and of the tables."""
        checks: list[Check] = []
        if self.storage:
            checks += store.RoundTrip(self.storage, self.storage_options, self.timeout).checks()
        for uri in self.tables:
            checks += store.table(uri, self.storage_options, self.confs, self.timeout)
        return checks

    def checks_of_spark(self, url: str) -> list[Check]:
        """Return the checks of a master, or of a Connect server."""
        return Spark(
            url,
            folder=self.storage,
            storage_options=self.storage_options,
            confs=self.confs,
            timeout=self.timeout,
        ).checks()
