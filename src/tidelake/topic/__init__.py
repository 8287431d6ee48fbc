"""Topics: in files and in Kafka, recorded and produced, and the schemas that a registry has for them."""
