"""The pages of the service, who may use them, and the files of credentials."""
