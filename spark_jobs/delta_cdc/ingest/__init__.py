"""Turn the bytes that another system wrote into events, by plain functions of Python.

``records`` decodes bytes, ``adapters`` turns a record into events, ``values`` turns a value into exactly its
column's type. Two modules drive them: ``sources`` gives the records of Arrow batches one by one, and
``batch`` carries each record through adapter and types. Start with
:func:`delta_cdc.ingest.batch.rows_of`, the function that Spark runs.

Nothing here raises for what a record contains: a function returns an
:class:`~delta_cdc.ingest.record.Invalid` with the reason instead. Nothing here knows Spark, so that all of it
runs on executors, in ``delta-cdc decode``, and in tests without a JVM.
"""
