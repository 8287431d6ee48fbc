"""The rules that collections must meet, for Great Expectations; `checks` shows the results in Dagster."""
