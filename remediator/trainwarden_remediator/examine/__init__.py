"""From a pending alert to a decision: objections, witnesses, the policy that applies."""
