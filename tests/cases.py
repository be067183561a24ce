"""One test over a table: it is called with each row, and its failure lists all rows that are wrong."""

from __future__ import annotations

import functools
import inspect
import traceback
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    Test = Callable[..., None]

LONGEST_NAME = 200


def cases(
    names: str | Sequence[str],
    rows: Iterable[Any],
    ids: Callable[[Any], object] | Iterable[object] = repr,
    **made: Callable[[Path], Any],
) -> Callable[[Test], Test]:
    """Make one test of a function and a table, for what is cheap; `pytest.mark.parametrize` makes one of each row.

    Each row gets a `tmp_path`, a `monkeypatch`, a `caplog` and a `capsys` as a test of its own would, where the test
    asks for them. All other fixtures are shared.

    Args:
        names: of the arguments that a row holds, as a sequence or with commas between them; one name: a row is a value.
        rows: the table.
        ids: how a row is called in a failure: a name for each, or what makes one of a value.
        made: arguments that are made anew for each row, of a folder of its own: by what.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [(row,) if len(arguments) == 1 else tuple(row) for row in rows]
    name_of = ids if callable(ids) else repr
    called = None if callable(ids) else list(map(str, ids))
    assert table, "the table is empty"
    assert called is None or len(called) == len(table), "expected as many names as rows"
    assert all(len(row) == len(arguments) for row in table), "a row has too many values, or too few"

    def decorate(test: Test) -> Test:
        wanted = [name for name in inspect.signature(test).parameters if name not in arguments]
        asked_for = [name for name in dict.fromkeys([*wanted, *(["tmp_path"] if made else [])]) if name not in made]

        @functools.wraps(test)
        def over_all_rows(**fixtures: Any) -> None:
            __tracebackhide__ = True
            wrong = []
            for number, row in enumerate(table):
                with ExitStack() as stack:
                    own = _for_one_row(fixtures, number, stack)
                    try:
                        own |= {name: make(own["tmp_path"]) for name, make in made.items()}
                        test(**dict(zip(arguments, row, strict=True)), **{name: own[name] for name in wanted})
                    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # the others are tested too
                        name = called[number] if called else ", ".join(str(name_of(value)) for value in row)
                        wrong.append((name[:LONGEST_NAME], _told(error), error))
            if wrong:
                told = "\n\n".join(f"{name}\n{text}" for name, text, _ in wrong)
                raise AssertionError(f"{len(wrong)} of {len(table)} rows are wrong:\n\n{told}") from wrong[0][2]

        over_all_rows.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in asked_for]
        )
        return over_all_rows

    return decorate


def _for_one_row(fixtures: dict[str, Any], number: int, stack: ExitStack) -> dict[str, Any]:
    own = dict(fixtures)
    if "tmp_path" in own:
        folder: Path = own["tmp_path"] / str(number)
        folder.mkdir()
        own["tmp_path"] = folder
    if "monkeypatch" in own:
        own["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
    if "caplog" in own:
        own["caplog"].clear()
    if "capsys" in own:
        own["capsys"].readouterr()
    return own


def _told(error: BaseException) -> str:
    """Return what a failure says, and the line of the test that it comes from."""
    places = [place for place in traceback.extract_tb(error.__traceback__) if place.filename != __file__]
    where = f"{places[0].filename}:{places[0].lineno}: " if places else ""
    return f"  {where}{''.join(traceback.format_exception_only(type(error), error)).strip()}".replace("\n", "\n  ")
