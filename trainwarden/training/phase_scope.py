"""A phase as a context manager."""

from trainwarden.training.recorder import Recorder


class PhaseScope:
    """What `phase()` returns: as a context manager it brings the phase before back."""

    def __init__(self, recorder: Recorder | None, name: str | None) -> None:
        self._recorder = recorder
        self._name = name
        self._before = recorder.phase if recorder else None
        if recorder and name:
            recorder.enter_phase(name)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        # A phase that was entered in between, by the first step for one, stays.
        if self._recorder and self._before and self._recorder.phase == self._name:
            self._recorder.enter_phase(self._before)
