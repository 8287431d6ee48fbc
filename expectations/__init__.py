"""What must be true of every collection, as rules for Great Expectations; `checks` shows the results in Dagster."""
