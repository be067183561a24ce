"""Prints the result of the latest training: as users of modal_monitor read its summaries.

python analyze.py FOLDER, the folder with one folder for each run.
"""

import json
import sys
from pathlib import Path

summaries = sorted(Path(sys.argv[1]).glob("*/summary.json"))
if summaries:
    with summaries[-1].open() as file:
        summary = json.load(file)

    print(f"Status: {summary['training']['status']}")
    print(f"Duration: {summary['training']['duration_seconds']}s")
    print(f"Final metric: {summary['training']['final_metric']}")
    print(f"Errors: {len(summary['errors'])}")
    print(f"Avg GPU memory: {summary['gpu_stats']['avg_allocated_mb']}MB")
