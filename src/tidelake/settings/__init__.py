"""The settings in `collections.yaml`, as the user wrote them."""
