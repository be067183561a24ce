"""The remediator: takes alerts, applies restart policies, verifies what came of it."""
