"""Kills, races and faults: real processes are really killed. `docs/decisions/kills.md` explains how."""
