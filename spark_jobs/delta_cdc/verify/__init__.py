"""Looks whether a target is what its pipeline says it is. Nothing is written.

:mod:`~delta_cdc.verify.plan` looks at the logs, without Spark; :mod:`~delta_cdc.verify.engine` at the rows,
in one Spark application for all tables; :mod:`~delta_cdc.verify.flow` joins the two.
"""
