"""What runs inside the training process: it keeps the record true, and stays out of the loop's way."""
