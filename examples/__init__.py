"""Examples that run as they are; the tests run them, too."""
