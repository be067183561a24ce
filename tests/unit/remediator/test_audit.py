"""What was decided cannot be changed, left out or cut off afterwards without `audit verify` naming the row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.cli import main
from trainwarden_remediator.database.audit import Head, head, verify
from trainwarden_remediator.database.database import open_database


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A database with a restart that recovered."""
    simulation = Simulation(tmp_path / "state", two_phase=True)
    simulation.tick(60, every=5)
    simulation.close()
    return tmp_path / "state"


@pytest.fixture
def engine(state: Path) -> Iterator[sa.Engine]:
    made = open_database(state)
    yield made
    made.dispose()


def run(engine: sa.Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text(statement))


def newest(engine: sa.Engine) -> Head:
    with engine.begin() as connection:
        found = head(connection)
    assert found is not None
    return found


def broken(engine: sa.Engine, expected: Head | None = None) -> tuple[int, str] | None:
    with engine.begin() as connection:
        return verify(connection, expected).broken


def test_a_log_that_was_only_appended_to_verifies(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        verdict = verify(connection, Head.parse(str(newest_of(connection))))
    assert verdict.broken is None
    assert verdict.rows > 5
    assert verdict.unchained == 0


def newest_of(connection: sa.Connection) -> Head:
    found = head(connection)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("statement", "number", "why"),
    [
        ("UPDATE events SET detail = 'nothing happened' WHERE number = 3", 3, "was changed"),
        ("UPDATE events SET time = time + 1 WHERE number = 2", 2, "was changed"),
        ("UPDATE events SET state = 'DONE' WHERE number = 1", 1, "was changed"),
        ("UPDATE events SET hash = NULL WHERE number = 4", 4, "was changed"),
        ("DELETE FROM events WHERE number = 3", 3, "is missing"),
        ("DELETE FROM events WHERE number > 4", 5, "rows at the end are missing"),
        ("DELETE FROM about WHERE key = 'audit: anchor'", 1, "no anchor"),
    ],
)
def test_the_first_row_that_was_tampered_with_is_named(
    engine: sa.Engine, statement: str, number: int, why: str
) -> None:
    run(engine, statement)
    found = broken(engine)
    assert found is not None
    assert found[0] == number
    assert why in found[1]


def test_a_chain_that_was_computed_anew_differs_from_what_was_noted_elsewhere(
    engine: sa.Engine, tmp_path: Path
) -> None:
    noted = newest(engine)
    other = Simulation(tmp_path / "other", two_phase=False)
    other.tick(200, every=5)
    other.close()
    forged = open_database(tmp_path / "other")
    assert broken(forged) is None
    found = broken(forged, noted)
    assert found is not None
    assert found[0] == noted.number
    forged.dispose()


def test_rows_of_an_older_remediator_come_before_the_chain(engine: sa.Engine, state: Path) -> None:
    run(engine, "UPDATE events SET hash = NULL")
    run(engine, "DELETE FROM about WHERE key = 'audit: anchor'")
    before = newest_number(engine)
    simulation = Simulation(state, two_phase=True)
    simulation.cluster.attempt = 5
    simulation.cluster.crash()
    simulation.tick(70, every=5)
    simulation.close()
    with engine.begin() as connection:
        verdict = verify(connection)
    assert verdict.broken is None
    assert verdict.unchained == before
    assert verdict.rows > 0


def newest_number(engine: sa.Engine) -> int:
    with engine.begin() as connection:
        number: int = connection.execute(sa.text("SELECT MAX(number) FROM events")).scalar_one()
    return number


def test_the_command_gives_the_head_and_names_a_broken_row(
    engine: sa.Engine, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noted = newest(engine)
    assert main(["audit", "verify", f"--state-dir={state}", f"--expect={noted}"]) == 0
    assert str(noted) in capsys.readouterr().out
    run(engine, "UPDATE events SET detail = '' WHERE number = 2")
    assert main(["audit", "verify", f"--state-dir={state}"]) == 1
    assert "row 2: it, or the row before, was changed" in capsys.readouterr().err
    assert main(["audit", "verify", f"--state-dir={state}", "--json"]) == 1
    assert '"row": 2' in capsys.readouterr().out
    assert main(["audit", "verify", f"--state-dir={state}", "--expect=x"]) == 2
    assert "--expect: 'x': expected NUMBER:HASH" in capsys.readouterr().err


def test_the_log_is_whole_after_old_alerts_were_deleted(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path / "pruned", two_phase=True)
    simulation.settle()
    simulation.cluster.complete()
    noted: list[Head] = []
    simulation.switch(lambda connection, _: noted.append(newest_of(connection)))
    simulation.clock.elapsed += 40 * 86400
    simulation.store.prune()

    def check(connection: sa.Connection) -> None:
        assert connection.execute(sa.text("SELECT COUNT(*) FROM alerts")).scalar_one() == 0
        verdict = verify(connection, noted[0])
        assert (verdict.broken, verdict.head) == (None, noted[0])

    simulation.switch(lambda connection, _: check(connection))
    assert len(simulation.store.with_events("run-1")) == 1, "what was decided stays"
    simulation.close()
