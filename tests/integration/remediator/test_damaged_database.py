"""The database of a running remediator is damaged: nothing more is done, and an operator sees why."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.remediator.conftest import Process
from tests.integration.remediator.fake_services import World, as_webhook
from tests.waiting import wait_until

_PAGE_BYTES = 4096


def _all_but_the_first_page(file: Path) -> None:
    with file.open("r+b") as damaged:
        damaged.seek(_PAGE_BYTES)
        damaged.write(b"\xa5" * (file.stat().st_size - _PAGE_BYTES))


def _the_header(file: Path) -> None:
    with file.open("r+b") as damaged:
        damaged.write(b"\xa5" * _PAGE_BYTES)


def _cut_off(file: Path) -> None:
    with file.open("r+b") as damaged:
        damaged.truncate(2 * _PAGE_BYTES)


@pytest.mark.parametrize(
    "damage",
    [_all_but_the_first_page, *(pytest.param(each, marks=pytest.mark.nightly) for each in (_the_header, _cut_off))],
)
def test_with_a_damaged_database_nothing_is_done_and_the_log_names_the_file(
    remediator: Process, world: World, damage: Callable[[Path], None]
) -> None:
    file = remediator.state_dir / "remediator.sqlite3"
    remediator.start()
    entry = world.alert()
    entry["status"] = {"state": "suppressed", "silencedBy": ["an-id"], "inhibitedBy": []}
    assert remediator.send(as_webhook(entry)).status == 200
    remediator.incident("SUPPRESSED")
    _while_it_is_stopped(remediator, file, damage)
    entry["status"] = {"state": "active", "silencedBy": [], "inhibitedBy": []}  # by now it would be acted on
    wait_until(lambda: not remediator.is_ready(), "it to see the damage")
    assert remediator.send(as_webhook(entry)).status == 503
    assert remediator.get("/-/healthy").status == 200
    log = remediator.folder / "log"
    wait_until(lambda: f"{file}: damaged" in log.read_text(), "the log to name the file")
    seen = world.asked.count("/api/v2/alerts")
    assert not remediator.is_ready()
    assert world.starts == []
    assert world.asked.count("/api/v2/alerts") - seen <= 1  # no round comes further than to the database
    assert log.read_text().count(f"{file}: damaged") == 1
    assert "Traceback" not in log.read_text()
    assert remediator.stop() == 0
    remediator.launch()
    assert remediator.wait() == 2
    assert f"{file}: " in log.read_text().splitlines()[-1]


def _while_it_is_stopped(remediator: Process, file: Path, damage: Callable[[Path], None]) -> None:
    """Damage a file between two transactions, and let SQLite drop the pages that it has read."""

    def is_done() -> bool:
        remediator.send_signal(signal.SIGSTOP)
        try:
            with closing(sqlite3.connect(file, timeout=0.1, isolation_level=None)) as connection:
                connection.execute("INSERT OR REPLACE INTO about VALUES ('another', 'change')")
                busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if not busy:
                    damage(file)
                return not busy
        except sqlite3.OperationalError:  # it was stopped within a transaction
            return False
        finally:
            remediator.send_signal(signal.SIGCONT)

    wait_until(is_done, "the remediator to be between two transactions")
