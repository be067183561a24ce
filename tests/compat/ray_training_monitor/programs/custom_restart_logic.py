"""A loop of the user's own: head pod, job id, checkpoints, entrypoint."""

import sys
import time

from trainwarden.ray import check_job_status, find_latest_checkpoint, submit_job_with_resume

head_pod, job_id, checkpoint_dir, entrypoint = sys.argv[1:]
retry_count = 0
max_retries = 5

while retry_count < max_retries:
    status = check_job_status(head_pod, job_id)

    if status == "SUCCEEDED":
        print("Training completed successfully!")
        break
    if status == "FAILED":
        print(f"Job failed, attempt {retry_count + 1}/{max_retries}")
        checkpoint_path = find_latest_checkpoint(checkpoint_dir)
        job_id = submit_job_with_resume(
            head_pod=head_pod, checkpoint_path=checkpoint_path, config={"entrypoint": entrypoint}
        )
        retry_count += 1
    time.sleep(0.2)
print(f"Last job: {job_id}")
