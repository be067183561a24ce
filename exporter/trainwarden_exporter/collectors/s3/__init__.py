"""Records of runs in S3, kept as a copy on this node."""
