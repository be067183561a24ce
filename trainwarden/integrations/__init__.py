"""Callbacks for training frameworks. Each module needs its framework; nothing else imports it."""
