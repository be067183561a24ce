"""The metrics of fine-tuning jobs by the names that dashboards and alerts for them know."""
