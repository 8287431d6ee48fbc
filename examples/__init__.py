"""Examples that run without changes; the tests run them, too."""
