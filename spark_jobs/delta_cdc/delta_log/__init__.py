"""Transaction log without a JVM: commits, identity, properties and recorded watermarks, through obstore."""

from __future__ import annotations
