"""What the library costs, measured: `make bench`, or `python -m benchmarks [NAME...]`."""
