"""One family of Dagster assets for each kind of collection; `family` has what they share."""
