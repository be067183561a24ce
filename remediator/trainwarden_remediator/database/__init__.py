"""The SQLite file: its tables, how it is opened, and how its integrity is checked."""
