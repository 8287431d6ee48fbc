"""The Dagster assets of a collection, with a file for each family of collections; `family` builds them."""
