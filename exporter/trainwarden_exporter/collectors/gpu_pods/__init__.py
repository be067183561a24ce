"""Which pod has each GPU of this node."""
