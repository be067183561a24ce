"""What stands beside a training that it started: it keeps the output, and says what the training cannot."""
