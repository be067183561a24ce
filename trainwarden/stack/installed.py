"""Whether what the services of the stack are made with is installed."""

from importlib.util import find_spec

from trainwarden.stack.service import ServiceFailed

# As they are imported: the extra `stack` brings them.
NEEDED = ("h11", "prometheus_client", "pydantic", "requests", "sqlalchemy", "yaml")


def require_installed() -> None:
    """Look for all of it.

    Raises:
        ServiceFailed: something is missing; the message names it, and what brings it.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        message = f"{', '.join(missing)} {verb} not installed; pip install 'trainwarden[stack]' brings what is needed"
        raise ServiceFailed(message)
