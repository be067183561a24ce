"""How far the clock of this node is off."""
