"""The fixture."""
