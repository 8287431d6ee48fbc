"""What a checkout needs before it can run: Java, the jars that Spark loads, and an archive of their classes."""
