"""Real services for tests: a Kafka broker, PostgreSQL, and Debezium in Kafka Connect, each on 127.0.0.1 only."""
