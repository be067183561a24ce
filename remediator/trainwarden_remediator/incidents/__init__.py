"""Alerts and incidents, as types and as rows, and what joins several alerts to one incident."""
