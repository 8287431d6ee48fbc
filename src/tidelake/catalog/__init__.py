"""The catalog: the names of collections, and how collections are created, changed, renamed and dropped."""
