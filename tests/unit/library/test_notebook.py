"""Notebooks: cells that fail, are interrupted and are run again, and `finish()` in the last one.

The shell has the events, the `get_ipython` and the results of IPython's `InteractiveShell`.
"""

import pytest

from tests.unit.library.looking import read_snapshot
from tests.unit.library.processes import Script

pytestmark = pytest.mark.process

_SHELL = '''
import sys, types, trainwarden

class Events:
    def __init__(self):
        self.callbacks = {"pre_run_cell": [], "post_run_cell": []}
    def register(self, event, function):
        self.callbacks[event].append(function)
    def unregister(self, event, function):
        self.callbacks[event].remove(function)
    def trigger(self, event, *arguments):
        for function in self.callbacks[event][:]:
            function(*arguments)

class Shell:
    """As IPython's: it shows the exception of a cell and goes on."""
    def __init__(self):
        self.events, self.names = Events(), {"trainwarden": trainwarden}
    def cell(self, code):
        self.events.trigger("pre_run_cell", types.SimpleNamespace(raw_cell=code))
        result = types.SimpleNamespace(error_before_exec=None, error_in_exec=None)
        try:
            exec(compile(code, "<cell>", "exec"), self.names)
        except BaseException as error:
            result.error_in_exec = sys.last_value = error
        self.events.trigger("post_run_cell", result)

shell = Shell()
sys.modules["IPython"] = types.ModuleType("IPython")
sys.modules["IPython"].get_ipython = lambda: shell
cell = shell.cell
def phase():
    from trainwarden.training.current import run_in_progress
    return run_in_progress()._recorder.phase
'''


@pytest.fixture
def notebook(script: Script) -> Script:
    script.runs.mkdir(exist_ok=True)
    (script.runs / "notebook.py").write_text(_SHELL)
    return script


def run(notebook: Script, cells: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(notebook.runs)!r}); from notebook import *\n"
    done = notebook.run(code + cells)
    assert done.returncode == 0, done.stderr


def test_a_cell_that_failed_can_be_run_again(notebook: Script) -> None:
    run(
        notebook,
        """
cell("run = trainwarden.run('r'); run.step(1); broken")
cell("run = trainwarden.run('r'); run.step(2)")
cell("run.step(3)")
cell("trainwarden.finish()")
""",
    )
    record = read_snapshot(notebook.folder)
    assert (record.state, record.progress.step) == ("succeeded", 3)
    assert notebook.read("_error.0")["exception_type"] == "NameError"


def test_a_run_goes_on_in_the_next_cell_after_one_that_failed(notebook: Script) -> None:
    run(
        notebook,
        """
cell("run = trainwarden.run('r'); run.step(1)")
cell("broken")
cell("run.step(2)")
cell("trainwarden.finish()")
""",
    )
    record = read_snapshot(notebook.folder)
    assert (record.state, record.progress.step, record.error) == ("succeeded", 2, None)


def test_an_interrupted_cell_ends_the_run(notebook: Script) -> None:
    run(notebook, "cell(\"run = trainwarden.run('r'); run.step(1)\"); cell('raise KeyboardInterrupt')")
    record = read_snapshot(notebook.folder)
    assert (record.state, record.metadata.reason) == ("cancelled", "SIGINT")


def test_between_two_cells_no_step_is_expected(notebook: Script) -> None:
    run(
        notebook,
        """
cell("run = trainwarden.run('r'); run.step(1)")
assert phase() == "idle"
cell("run.phase('eval')")
seen = []
shell.names["seen"], shell.names["phase"] = seen, phase
cell("seen.append(phase())")
assert seen == ["eval"] and phase() == "idle", (seen, phase())
cell("run.finish(); run.finish(); trainwarden.finish()")
assert not any(shell.events.callbacks.values())
""",
    )
    assert read_snapshot(notebook.folder).state == "succeeded"


def test_finish_ends_a_run_in_a_script(script: Script) -> None:
    done = script.run("""
        import trainwarden
        trainwarden.finish()
        trainwarden.run("r", total_steps=9).step(2)
        trainwarden.finish()
        raise SystemExit(3)
    """)
    assert "finish() before run()" in done.stderr
    record = read_snapshot(script.folder)
    assert (record.state, record.metadata.reason) == ("succeeded", "ended at step 2 of 9")
