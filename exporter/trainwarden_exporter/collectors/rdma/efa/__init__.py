"""EFA devices: their counters, links, and how many there should be."""
