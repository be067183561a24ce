"""The short calls of a user of the Ray training monitor, for one job."""

import sys

from trainwarden.ray import check_job_status, detect_stall, get_current_step, monitor_job

head_pod, job_id = sys.argv[1:]
status = check_job_status(head_pod, job_id)
print(f"Job status: {status}")
step = get_current_step(head_pod, job_id)
print(f"Current step: {step}")
is_stalled = detect_stall(head_pod=head_pod, job_id=job_id, stagnation_threshold=300)
print(f"Stalled: {is_stalled}")
result = monitor_job(head_pod=head_pod, job_id=job_id, check_interval=30)
print(f"Ended: {result['status']} {result['final_step']} {result['duration'] >= 0}")
