"""What a checkout needs before it can run: Java and the jars that Spark loads."""
