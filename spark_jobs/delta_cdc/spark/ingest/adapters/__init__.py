"""The bundled adapters, one module each (:mod:`delta_cdc.core.adapters`)."""

from __future__ import annotations
