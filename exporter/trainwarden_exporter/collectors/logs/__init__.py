"""The collector of logs: signals and progress in the logs of runs."""
