"""Kills of runs at random moments, and what the next run makes of the tables that they left."""
