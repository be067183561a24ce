"""What speaks for a training inside a framework's own loop; each module needs its framework, and nothing else does."""
