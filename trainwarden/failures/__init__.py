"""Failures: `entries` of the taxonomy, the `patterns` of tools, and how exceptions, messages and exits are classified.

Use them through `trainwarden.taxonomy` and `trainwarden.classify`.
"""
