"""Encodes and decodes CDCv2 messages, in Avro and in JSON. Pure: no I/O."""
