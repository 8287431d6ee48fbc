"""The Dagster assets of a collection. Each family of collections has a file; `assets.family` builds the assets."""
