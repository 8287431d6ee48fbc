"""The Delta layer, through real Spark, real files and real commits."""
