"""How the interpreter came to its end, as far as an exit handler can find out: nothing tells it directly."""

import builtins
import opcode
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

# The second one exists in some versions of Python only.
_RETURNS = frozenset(opcode.opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in opcode.opmap)


class UnknownExit(Exception):
    """The interpreter was left in a way that may be success or failure; the message says which way."""


class ExitStatus:
    """Remembers what the calls that end an interpreter said, and whether its first frame was left by returning.

    Args:
        moves: a number that changes when the training loop moves: what was said before that was caught by somebody.
    """

    def __init__(self, moves: Callable[[], int]) -> None:
        self._moves = moves
        self._said: tuple[Any, int] | None = None
        self._shown_before = _shown()
        self._frame: FrameType | None = None
        self._previous_exit = sys.exit
        self._quitter: Any = type(getattr(builtins, "exit", None))
        self._previous_quit: Any = None
        self._on_quit: Any = None

    def install(self) -> None:
        """Begin to listen."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001  # documented in spite of its name
        while frame is not None and frame.f_back is not None:
            frame = frame.f_back
        self._frame = frame
        sys.exit = self._on_exit
        # Absent under `python -S`.
        if self._quitter.__module__ == "_sitebuiltins":
            self._replace_quit(self._quitter.__call__)

    def remove(self) -> None:
        """Stop listening; what others put over our hooks since stays."""
        self._frame = None
        if sys.exit == self._on_exit:
            sys.exit = self._previous_exit
        if self._previous_quit is not None and self._quitter.__call__ is self._on_quit:
            self._quitter.__call__ = self._previous_quit

    def left_by(self) -> BaseException | None:
        """What ended the interpreter, asked in an exit handler: None is its normal end, with status 0."""
        shown = _shown()
        if shown is self._shown_before:
            shown = None
        frame = self._frame
        if frame is None or frame.f_code.co_code[frame.f_lasti] in _RETURNS:
            # A notebook shows what a cell raised, goes on, and is closed well.
            return shown and UnknownExit(f"ended after {type(shown).__name__} was shown and not raised on")
        if self._said is not None and self._said[1] == self._moves():
            return SystemExit(self._said[0])
        # Somebody may have put a hook over ours that reports exceptions in his own way.
        return shown or UnknownExit("left by a SystemExit whose status is not known")

    def _replace_quit(self, previous: Any) -> None:
        def leave(quitter: Any, code: Any = None) -> Any:
            self._remember(code)
            return previous(quitter, code)

        self._previous_quit, self._on_quit = previous, leave
        self._quitter.__call__ = leave

    def _on_exit(self, status: Any = None, /) -> Any:
        self._remember(status)
        return self._previous_exit(status)

    def _remember(self, status: Any) -> None:
        # In any other thread it ends that thread and no more.
        if threading.current_thread() is threading.main_thread():
            self._said = (status, self._moves())


def _shown() -> BaseException | None:
    """The last exception that an interpreter or a notebook has shown its user."""
    shown = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return shown if isinstance(shown, BaseException) else None
