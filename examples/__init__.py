"""What can be run as it is, and is run by the tests."""
