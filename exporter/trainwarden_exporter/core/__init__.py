"""What collectors, sampling and pages share: metrics and their exposition, the node, specs."""
