"""The pages of the errors."""
