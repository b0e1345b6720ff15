"""Check that a target is what its pipeline records. Nothing is written.

:mod:`~delta_cdc.planning.verify` checks the logs, without Spark; :mod:`~delta_cdc.spark.verify.engine` checks
the rows, in one Spark application for all tables; :mod:`~delta_cdc.run.verify` combines both.
"""
