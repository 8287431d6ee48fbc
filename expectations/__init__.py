"""What must be true of every collection, as Great Expectations; `checks` shows the results in Dagster."""
