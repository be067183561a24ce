"""What shell scripts call. `heartbeat` and `phase` are called all the time, and load next to nothing."""
