"""Validation: recount what seal has published, by another way."""
