"""The collector of runs: their records, and what their logs add."""
