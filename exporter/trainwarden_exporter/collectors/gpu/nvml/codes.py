"""Return codes of NVML (nvmlReturn_t in nvml.h): their names on the page, and what follows from each."""

from __future__ import annotations

from trainwarden_exporter.collectors.gpu.calls import CallFailure, Effect

NAMES = {
    1: "uninitialized",
    2: "invalid_argument",
    3: "not_supported",
    4: "no_permission",
    6: "not_found",
    8: "insufficient_power",
    9: "driver_not_loaded",
    10: "timeout",
    11: "irq_issue",
    12: "library_not_found",
    13: "function_not_found",
    14: "corrupted_inforom",
    15: "gpu_is_lost",
    16: "reset_required",
    17: "operating_system",
    18: "driver_library_mismatch",
    19: "in_use",
    20: "memory",
    21: "no_data",
    23: "insufficient_resources",
    27: "not_ready",
    28: "gpu_not_found",
    29: "invalid_state",
    999: "unknown",
}
INVALID_ARGUMENT = 2
NOT_FOUND = 6
EFFECTS = {
    # The GPU or this driver lacks it, or has no such instance: a link that is absent, a field that is too new.
    **dict.fromkeys((INVALID_ARGUMENT, 3, 13, 25, 26), Effect.UNSUPPORTED),
    4: Effect.DENIED,
    # The GPU is gone, or answers nothing until it is reset.
    **dict.fromkeys((10, 15, 16, 28), Effect.GPU_DOWN),
    # The library has lost its driver.
    **dict.fromkeys((1, 9, 18), Effect.LIBRARY_DOWN),
}


def name_of(code: int) -> str:
    """Return the name of a return code on the page."""
    return NAMES.get(code, f"code_{code}")


def failure_of_code(code: int) -> CallFailure:
    """Return what a return code other than 0 means."""
    return CallFailure(name_of(code), EFFECTS.get(code, Effect.FAILED))


def failure_of(error: Exception) -> CallFailure:
    """Return what an exception of pynvml means; one that carries no return code comes from its own conversions."""
    code = getattr(error, "value", None)
    return failure_of_code(code) if isinstance(code, int) else CallFailure(type(error).__name__, Effect.FAILED)
