"""What a user wrote in `collections.yaml`."""
