"""The pages of a lake and its collections: static HTML with JSON next to it, and a history of validations."""
