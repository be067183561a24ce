"""What all tests share: the real tools, and the rule that CI skips nothing but what the README lists."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.ray.environment import RayUnavailable, find_python
from tests.ray.head import Head, shared_head
from tests.session import Session, begin
from tests.slurm.cluster import Cluster, shared_cluster
from tests.slurm.programs import Programs, find_programs
from trainwarden.stack.binaries import Tools, ToolsMissing, find_tools
from trainwarden.stack.debian import PackagesUnavailable

ROOT = Path(__file__).resolve().parents[1]
IN_CI = os.environ.get("CI") == "true"
# Marks of tests that wait, the longest first; a test without one computes.
WAITING = ({"e2e", "slurm", "ray"}, {"tools"}, {"slow"}, {"process"})
# Of the process that was started; its workers have none of their own.
_sessions: list[Session] = []


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Begin the session, and heed a terminal's signals, in children too: a shell ignores some in its background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if not hasattr(config, "workerinput"):
        _sessions.append(begin())
        # Below the session's folder by a short name: the path of a UNIX socket has at most 107 bytes.
        config.option.basetemp = config.option.basetemp or str(_sessions[0].folder / "t")


def pytest_keyboard_interrupt() -> None:
    """Bound the time that the end of an interrupted run takes."""
    for session in _sessions:
        session.interrupted()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """End the session: services that the workers shared, and what tests have left."""
    for session in _sessions:
        session.end()


@pytest.fixture(scope="session")
def tools() -> Tools:
    """Prometheus, promtool, Alertmanager and amtool, the real ones."""
    try:
        return find_tools()
    except ToolsMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def slurm_programs() -> Programs:
    """SLURM's programs."""
    try:
        return find_programs()
    except PackagesUnavailable as error:
        pytest.skip(f"SLURM cannot be had: {error}")


@pytest.fixture(scope="session")
def cluster(slurm_programs: Programs) -> Cluster:
    """Nodes that all tests share: jobs and runs have names of their own, and no daemon is stopped."""
    return shared_cluster(slurm_programs)


@pytest.fixture(scope="session")
def ray_python() -> Path:
    """The Python of an environment that has Ray."""
    try:
        return find_python()
    except RayUnavailable as error:
        pytest.skip(f"Ray cannot be had: {error}")


@pytest.fixture(scope="session")
def head(ray_python: Path) -> Head:
    """A Ray head with four GPUs that all tests share: jobs have names of their own, and no one stops it."""
    return shared_head(ray_python)


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
    """Begin with the tests that wait longest: at the end they would run alone, with a core idle beside them."""

    def place(item: pytest.Item) -> int:
        marks = {mark.name for mark in item.iter_markers()}
        return next((number for number, waiting in enumerate(WAITING) if marks & waiting), len(WAITING))

    items.sort(key=place)


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
