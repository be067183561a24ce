"""Many values of one GPU in one call: NVML's fields, in an array that is made once."""

from __future__ import annotations

import math
from ctypes import byref, c_int32
from typing import TYPE_CHECKING

import pynvml

from trainwarden_exporter.collectors.gpu.nvidia.library import INVALID_ARGUMENT, UNSUPPORTED
from trainwarden_exporter.collectors.gpu.nvidia.valid import counted
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden_exporter.collectors.gpu.nvidia.calls import Calls

_NAME = "nvmlDeviceGetFieldValues"
_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
# Drivers that refuse a whole call for one field they do not know have all up to this one.
_OLD = 160
# In place of a link, for what NVML sums up over all.
ALL_LINKS = 0xFFFFFFFF


class Fields:
    """The fields `(id, scope)` of one GPU. Each has a return code of its own: one that fails costs no other."""

    def __init__(self, wanted: Sequence[tuple[int, int]]) -> None:
        self._want(wanted)

    def read(self, calls: Calls) -> dict[tuple[int, int], float]:
        """Return the values that there are; raises `GpuDown` if the GPU is lost."""
        if not self._keys or calls.is_absent(_NAME):
            return {}
        enter(_NAME)
        try:
            function = pynvml._nvmlGetFunctionPointer(_NAME)  # noqa: SLF001  # the wrapper makes a new array each time
            code = function(calls.handle, c_int32(len(self._keys)), byref(self._values))
        except pynvml.NVMLError as error:
            code = error.value
        if code == INVALID_ARGUMENT and any(field > _OLD for field, _ in self._keys):
            self._want([key for key in self._keys if key[0] <= _OLD])  # the driver is older than the others
            return {}
        if code != 0:
            calls.failed((_NAME, ()), code)
            return {}
        calls.answered += 1
        found, gone = {}, set()
        for key, value in zip(self._keys, self._values, strict=True):
            if value.nvmlReturn == 0:
                number = _number(value)
                if number is not None:
                    found[key] = number
            elif value.nvmlReturn in UNSUPPORTED:
                gone.add(key)
            else:
                calls.failed((f"{_NAME} {key[0]}", ()), value.nvmlReturn)
        if gone:
            self._want([key for key in self._keys if key not in gone])
        return found

    def _want(self, keys: Sequence[tuple[int, int]]) -> None:
        self._keys = list(keys)
        self._values = (pynvml.c_nvmlFieldValue_t * len(self._keys))()
        for value, (field, scope) in zip(self._values, self._keys, strict=True):
            value.fieldId, value.scopeId = field, scope


def _number(value: pynvml.c_nvmlFieldValue_t) -> float | None:
    member = _MEMBERS.get(value.valueType)
    if member is None or not hasattr(value.value, member):
        return None
    number = getattr(value.value, member)
    return counted(number) if math.isfinite(number) else None
