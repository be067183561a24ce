"""`python -m tests.contracts`: write all contracts as they are now."""

from __future__ import annotations

from tests.contracts.compare import FAMILIES, PROCESSES, expected_file, observed
from tests.contracts.record import write_samples

for family in (*FAMILIES, *PROCESSES):
    file = expected_file(family)
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join([*observed(family), ""]), encoding="utf-8")
    print(file)
print(write_samples())
