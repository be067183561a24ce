"""What a training script imports is the standard library, and little of it."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import trainwarden
from tests.cases import cases

ROOT = Path(trainwarden.__file__).resolve().parents[1]


def _modules_after(code: str) -> set[str]:
    # Without site-packages: whatever is not in the standard library cannot be had.
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules)\n{code}\n"
    code += "import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.process
def test_importing_it_loads_nothing_but_itself_until_it_is_used() -> None:
    assert {name for name in _modules_after("import trainwarden") if name.startswith("trainwarden")} == {"trainwarden"}


@pytest.mark.process
def test_a_whole_run_needs_the_standard_library_only(tmp_path: Path) -> None:
    code = f"""
import trainwarden
try:
    with trainwarden.run("r", dir={str(tmp_path)!r}) as run:
        run.step(1, loss=1.0)
        run.checkpoint_saved({str(tmp_path)!r})
        run.resume_checkpoint()
        raise ValueError
except ValueError:
    pass
"""
    loaded = {name.partition(".")[0] for name in _modules_after(code)}
    assert "trainwarden" in loaded
    assert loaded - {"trainwarden"} <= set(sys.stdlib_module_names)
    assert (tmp_path / "r" / "_error").exists()


@cases("name", ["step", "phase", "epoch", "error", "note", "checkpoint_saved", "resume_checkpoint"])
def test_a_function_of_the_module_has_the_signature_and_the_docstring_of_the_method_of_run(name: str) -> None:
    function, method = getattr(trainwarden, name), getattr(trainwarden.Run, name)
    of_method = inspect.signature(method)
    without_self = of_method.replace(parameters=list(of_method.parameters.values())[1:])
    assert inspect.signature(function) == without_self
    assert inspect.getdoc(function) == inspect.getdoc(method)
