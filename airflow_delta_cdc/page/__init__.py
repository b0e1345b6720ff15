"""The page "Delta CDC" of Airflow's UI: what each pipeline did, how far it is behind, what to do."""
