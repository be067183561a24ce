"""Failures: `entries` of the taxonomy, `phrases` of tools, and how exceptions, messages and exits are classified.

Use them through `trainwarden.taxonomy` and `trainwarden.classify`.
"""
