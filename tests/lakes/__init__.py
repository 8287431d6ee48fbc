"""Lakes for tests: collections and the real jobs, on topics that are written by hand, generated, or kept in Kafka."""
