"""Fine-tuning jobs by the metric names of the fine-tuning exporter, which dashboards and alerts use."""
