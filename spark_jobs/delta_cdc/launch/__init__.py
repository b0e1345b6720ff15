"""Starting Spark: Java, JARs, class-data archive, confs, and the secrets that it needs."""

from __future__ import annotations
