"""The rule bundle: its files, the values in them that a team may change, and `trainwarden rules`."""
