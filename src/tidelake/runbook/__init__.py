"""The runbook: the cause of each error, what to do, and the commands for it."""
