"""The copy of run records in S3. boto3 is imported only when a record is copied."""
