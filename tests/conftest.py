"""What all tests share: the real tools, and the rule that CI skips nothing but what the README lists."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from trainwarden.stack.binaries import Tools, ToolsMissing, find_tools

ROOT = Path(__file__).resolve().parents[1]
IN_CI = os.environ.get("CI") == "true"
# Their files compute for minutes, each in one worker: beside tests that wait.
LONGEST = "test_any_order"
# Marks of tests that mostly wait for services.
WAITING = ("e2e", "slurm", "ray")
# Marks of tests whose processes and services a busy machine may hold up.
RUN_AGAIN = (*WAITING, "process", "slow", "tools")


def pytest_configure() -> None:
    """Heed a terminal's signals, in children too: a shell ignores some in its background, nohup another."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def tools() -> Tools:
    """Prometheus, promtool, Alertmanager and amtool, the real ones."""
    try:
        return find_tools()
    except ToolsMissing as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def no_signal_stays_blocked() -> Iterator[None]:
    """What a test starts inherits the mask: one test must not make the processes of the next deaf."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    after = signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert after == before, "the test left signals blocked"


def allowed_skips(readme: str) -> list[str]:
    """The beginnings of the skip reasons that the README lists under "Skipped tests"."""
    section = readme.partition("### Skipped tests")[2].partition("\n#")[0]
    return re.findall(r"^- `([^`]+)`", section, re.MULTILINE)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while the tests are collected, nor among them later: half of the collection's time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files and the tests that wait for services, then those that take seconds.

    At the end they would run alone, with a core idle beside them.

    In CI one of 20,000 tests that fails where a machine stood still must not hide what the others show: a test of
    processes or services runs once more, and the summary lists it as RERUN. Anywhere else it fails at once.
    """
    marks = {item: {mark.name for mark in item.iter_markers()} for item in items}
    items.sort(
        key=lambda item: (
            not item.path.name.startswith(LONGEST),
            marks[item].isdisjoint(WAITING),
            "slow" not in marks[item],
        )
    )
    for item in items:
        if IN_CI and not marks[item].isdisjoint(RUN_AGAIN):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        allowed = allowed_skips((ROOT / "README.md").read_text(encoding="utf-8"))
        if not any(beginning in reason for beginning in allowed):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: {reason}; the README does not list it among the tests that CI may skip"
    return report
