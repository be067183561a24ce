"""A job that is monitored in a thread, while the script does something else: head pod, job id."""

import sys
import threading

from trainwarden.ray import monitor_job


def monitor_in_background(head_pod: str, job_id: str) -> None:
    result = monitor_job(head_pod, job_id, check_interval=0.2)
    print(f"Job {job_id} finished with status: {result['status']}")


thread = threading.Thread(target=monitor_in_background, args=(sys.argv[1], sys.argv[2]))
thread.daemon = True
thread.start()
thread.join()
