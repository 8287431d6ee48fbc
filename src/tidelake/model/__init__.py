"""In-memory collections, the oracle of the tests and of the book. No job uses them."""
