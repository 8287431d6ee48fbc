"""What must be true of every collection, said as Great Expectations; `checks` is the one bridge to Dagster."""
