"""Publishes a collection as CDCv2: what every publisher of a topic states, and how it finds out what the topic has."""
