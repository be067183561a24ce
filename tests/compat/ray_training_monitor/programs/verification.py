"""What a user of the Ray training monitor looks at after the start of a training."""

import sys

from trainwarden.ray import check_efa_utilization, check_gpu_utilization, verify_ray_resources

head_pod = sys.argv[1]
gpu_info = check_gpu_utilization(head_pod)
if gpu_info["healthy"]:
    print(f"GPUs: {gpu_info['gpu_count']}")
    print(f"Average utilization: {gpu_info['avg_utilization']:.1f}%")
    for i, util in enumerate(gpu_info["gpu_utilizations"]):
        print(f"  GPU {i}: {util}%")

resources = verify_ray_resources(head_pod)
if resources["healthy"]:
    print(f"GPUs used: {resources['gpus_used']}/{resources['gpus_available']}")
    if resources["gpus_used"] == 0 and resources["gpus_available"] > 0:
        print("WARNING: GPUs available but not being used!")

efa = check_efa_utilization(head_pod)
if not efa["efa_active"]:
    print(f"WARNING: EFA not active! Transport: {efa['transport']}")
