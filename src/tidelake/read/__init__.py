"""Reading: contents AS OF a time, `current`, and the state of a collection."""
