"""Bronze, silver, gold by a file: three hops, each in a DAG of its own, each woken by the one before.

The same as `medallion`, without its Python: `configured_chain.yaml` says what each hop reads, writes, and is
woken by. A watcher on `orders` wakes `configured_bronze`; what that applies wakes `configured_silver`, and so
on. A hop with nothing to do wakes no DAG.

The DAGs are paused at first: unpause all three.
"""

from __future__ import annotations

import os

from example_settings import TABLES

from airflow_delta_cdc.dags import build_dags

# The file names its tables by this variable.
os.environ.setdefault("DELTA_CDC_EXAMPLE_TABLES", TABLES)

dags = build_dags("configured_chain.yaml", doc_md=__doc__)
