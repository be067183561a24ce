"""The decision, without clock, network or database."""
