"""What commands read of runs: where their records are, and how each run is."""
