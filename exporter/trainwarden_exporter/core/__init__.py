"""What every part of the exporter is built on: metrics, their exposition, the node, text that is fit for a label."""
