"""S3 as a second home of run records, and as a place of checkpoints. boto3 is imported only where it is used."""
