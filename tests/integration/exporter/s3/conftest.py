"""S3 as the exporter finds it: moto's server behind a proxy that misbehaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.exporter.s3.prefix import Prefix
from tests.integration.s3.conftest import moto_url, plain_environment, read_models_once, s3, store  # noqa: F401
from tests.integration.s3.faulty_server import FaultyServer
from tests.integration.s3.store import Store


@pytest.fixture
def prefix(store: Store, s3: FaultyServer, tmp_path: Path) -> Prefix:  # noqa: F811  # the fixtures
    """A prefix with records, its copy, and the collector of runs that looks at the copy."""
    return Prefix(store, s3, tmp_path)
