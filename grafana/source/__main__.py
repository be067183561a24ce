"""Write the dashboards: `python -m grafana.source [FOLDER]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grafana.source.finetuning import FINETUNING
from grafana.source.fleet import FLEET
from grafana.source.node import NODE
from grafana.source.remediation import REMEDIATION
from grafana.source.run import RUN

BOARDS = (FLEET, RUN, NODE, REMEDIATION, FINETUNING)


def main(arguments: list[str]) -> None:
    """Write each dashboard to a file named after its uid."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parents[1] / "dashboards"
    for text in BOARDS:
        (folder / f"{json.loads(text)['uid']}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
