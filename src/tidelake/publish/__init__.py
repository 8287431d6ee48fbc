"""Publishes a collection as CDCv2: what each publisher of a topic states, and how it learns what is already stated."""
