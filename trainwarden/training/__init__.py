"""The part that runs inside the training process: it writes the run's record from a thread of its own."""
