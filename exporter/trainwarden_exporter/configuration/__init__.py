"""Configuration files: how they are read, what of them differs from before, and how a running exporter follows them."""
