"""Trains one fold of a cross-validation after the other, each a training of its own.

python folds.py NUMBER
"""

import sys

from trainwarden.integrations.modal_monitor import ModalMonitor

monitor = ModalMonitor()
for fold in range(int(sys.argv[1])):
    monitor.start_training(script="classifier", gpu_type="T4")
    monitor.complete_training(status="completed", final_metric=fold)
