"""The dashboards as code: `python -m grafana.source` writes grafana/dashboards (a part of `make docs`)."""
