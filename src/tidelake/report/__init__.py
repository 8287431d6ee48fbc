"""The pages of a lake and its collections: static HTML with JSON beside it, and a history of validations."""
