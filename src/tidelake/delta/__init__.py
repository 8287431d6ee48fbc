"""The only rooms that know Spark and Delta: they move data and make commits for the pure core."""
