"""Kills, races and faults: real processes that really die. `docs/decisions/kills.md` says how."""
