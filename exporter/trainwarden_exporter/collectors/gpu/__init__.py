"""What GPUs of every vendor are called by: the metrics that they share."""
