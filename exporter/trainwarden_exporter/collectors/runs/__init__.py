"""What the records of runs tell, and which of them this exporter tells of."""
