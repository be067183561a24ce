"""The report on a training, as a user of the Ray training monitor asks for it: head pod, checkpoints, all pods."""

import sys

from trainwarden.ray import get_training_health, print_training_health

report = get_training_health(head_pod=sys.argv[1], checkpoint_dir=sys.argv[2], all_pods=sys.argv[3:])
print_training_health(report)

print(f"Healthy: {report['healthy']}")
print(f"GPU avg: {report['gpu']['avg_utilization']:.0f}%")
print(f"EFA: {report['efa']['transport']}")
print(f"Latest checkpoint: step {report['checkpoints']['latest_step']}")
print(f"Issues: {report['issues']}")
