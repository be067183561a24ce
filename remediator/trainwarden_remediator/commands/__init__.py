"""The commands beside the service: what they check, show and change."""
