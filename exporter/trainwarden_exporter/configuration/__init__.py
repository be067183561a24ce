"""The file of `--config.file`: read, checked, and read again by a running exporter."""
