"""Many values of one GPU in one call: NVML's fields (NVML_FI_* in nvml.h), in an array that is made once."""

from __future__ import annotations

import math
import time
from ctypes import byref, c_int32
from typing import TYPE_CHECKING

import pynvml

from trainwarden_exporter.collectors.gpu.calls import FORGET_SECONDS, Effect
from trainwarden_exporter.collectors.gpu.nvml.codes import INVALID_ARGUMENT, failure_of_code
from trainwarden_exporter.collectors.gpu.nvml.values import counted
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden_exporter.collectors.gpu.calls import DriverCalls

_NAME = "nvmlDeviceGetFieldValues"
_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
# Drivers that refuse a whole call for one field that is too new for them support all fields up to this one.
_OLD = 160
# In place of a link's number, for the sum over all links.
ALL_LINKS = 0xFFFFFFFF
FieldKey = tuple[int, int]


class FieldValues:
    """The fields `(id, scope)` of one GPU. Each has a return code of its own: one that fails costs no other.

    pynvml's own function makes a new array each time: 130 µs for 40 fields against 12.5 µs with one array.
    """

    def __init__(self, calls: DriverCalls, wanted: Sequence[FieldKey]) -> None:
        self._calls = calls
        self._wanted = tuple(wanted)
        self._want(wanted)
        self._since = time.monotonic()

    def read(self) -> dict[FieldKey, float]:
        """Return the values that there are; raises `GpuDown` if the GPU is lost."""
        if time.monotonic() - self._since > FORGET_SECONDS:
            self._want(self._wanted)  # ask again for what was unsupported
            self._since = time.monotonic()
        if not self._keys or self._calls.is_skipped((_NAME, ())):
            return {}
        enter(_NAME)
        try:
            function = pynvml._nvmlGetFunctionPointer(_NAME)  # noqa: SLF001  # pynvml's wrapper makes a new array
            code = function(self._calls.handle, c_int32(len(self._keys)), byref(self._values))
        except pynvml.NVMLError as error:
            code = error.value
        if code == INVALID_ARGUMENT and any(field > _OLD for field, _ in self._keys):
            self._want([key for key in self._keys if key[0] <= _OLD])  # the driver is older than the other fields
            return {}
        if code != 0:
            self._calls.fail((_NAME, ()), failure_of_code(code))
            return {}
        self._calls.answered += 1
        return self._found()

    def _found(self) -> dict[FieldKey, float]:
        found, gone = {}, set()
        for key, value in zip(self._keys, self._values, strict=True):
            if value.nvmlReturn == 0:
                number = _number(value)
                if number is not None:
                    found[key] = number
                continue
            failure = failure_of_code(value.nvmlReturn)
            if failure.effect is Effect.UNSUPPORTED:
                gone.add(key)
            else:
                self._calls.fail((f"{_NAME} {key[0]}", ()), failure)
        if gone:
            self._want([key for key in self._keys if key not in gone])
        return found

    def _want(self, keys: Sequence[FieldKey]) -> None:
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
