"""Functions over strings."""
