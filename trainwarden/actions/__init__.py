"""`trainwarden actions`: run declared commands on events of runs, such as an evaluation of each saved checkpoint."""
