"""Which job each GPU of this node works for."""
