"""Rules for Great Expectations that every collection must meet; `checks` shows the results in Dagster."""
