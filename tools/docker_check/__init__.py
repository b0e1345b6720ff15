"""``make docker-check``: find what is wrong with ``docker/`` on a machine that has no Docker engine."""
