"""Real services for tests, on 127.0.0.1 only: Kafka, a schema registry, PostgreSQL, Debezium, S3 and Prometheus."""
