"""Flags that remember which of them were read: while those are the same, what was made from them is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Noted(Mapping[str, Any]):
    """A view of `flags`; `read` are those that were looked at, as they were."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        self._flags = flags
        self.read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        value = self.read[name] = self._flags[name]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._flags)

    def __len__(self) -> int:
        return len(self._flags)

    def holds_for(self, flags: Mapping[str, Any]) -> bool:
        """Tell whether those that were read are the same in other flags."""
        return all(flags[name] == value for name, value in self.read.items())
