"""The protocols of framings and envelopes, and their registries."""
