"""Trainwarden: a training process tells the truth about itself."""

__version__ = "0.1.0"
