"""The durable state of the service, each method one transaction."""
