"""Decode records: bytes of a line, a message or a file become plain values of Python.

Each module decodes one format. What is not of its format becomes an
:class:`~delta_cdc.ingest.record.Invalid` with the reason; nothing is repaired, rounded or left out.
"""
