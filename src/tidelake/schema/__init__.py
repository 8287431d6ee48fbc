"""Record schemas: Avro, their columns, schema evolution, and the types of Kafka Connect. Pure: no I/O."""
