"""A training that is restarted until it is complete: head pod, job name, checkpoints."""

import logging
import sys

from trainwarden.ray import auto_restart

head_pod, job_name, checkpoint_dir = sys.argv[1:]
logging.basicConfig(level=logging.INFO)

result = auto_restart(
    head_pod=head_pod,
    job_name=job_name,
    checkpoint_dir=checkpoint_dir,
    max_retries=10,
    retry_delay=0,
    stagnation_threshold=600,
    check_interval=0.5,
)

if result["success"]:
    print(f"Training completed at step {result['final_step']} after {result['total_retries']} retries")
else:
    print(f"Training failed after {result['total_retries']} retries: {result['reason']}")
    sys.exit(1)
