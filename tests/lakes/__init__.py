"""Lakes for tests: collections on topics written by hand, generated or kept in Kafka, with the real jobs."""
