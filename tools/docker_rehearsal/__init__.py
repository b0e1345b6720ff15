"""``make docker-rehearsal``: the compose file's services as processes in namespaces, without an engine."""
