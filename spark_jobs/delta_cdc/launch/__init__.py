"""Prepare the start of Spark: Java, JARs, class-data archive, confs and secrets."""

from __future__ import annotations
