"""Sealed commits: the steps of a job, one commit of each, and what a table refuses."""
