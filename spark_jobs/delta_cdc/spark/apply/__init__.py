"""Applying changes to a target: desired rows of the affected keys, in one sealed commit."""
