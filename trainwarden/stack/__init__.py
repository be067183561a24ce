"""The whole of Trainwarden on one machine: tools, services, the local launcher and `trainwarden up`."""
