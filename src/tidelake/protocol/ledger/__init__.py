"""The ledger, which turns statements and counts into the frontier."""
