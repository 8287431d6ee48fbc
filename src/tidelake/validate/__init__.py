"""Validation: recounts what seal has published, in a different way from seal."""
