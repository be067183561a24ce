"""What storage, networks, programs and schedulers make tools print when a training fails, as (type, message, slug)."""

NETWORK = [
    ("requests.exceptions.HTTPError", "401 Client Error: Unauthorized for url: https://huggingface.co/api", "hub_auth"),
    ("requests.exceptions.HTTPError", "503 Server Error: Service Unavailable for url: https://hf.co/x", "hub_network"),
    ("requests.exceptions.HTTPError", "429 Client Error: Too Many Requests for url: https://hf.co/x", "hub_network"),
    (
        "requests.exceptions.ConnectionError",
        "('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
        "hub_network",
    ),
    (
        "requests.exceptions.ReadTimeout:Timeout",
        "HTTPSConnectionPool(host='hf.co', port=443): Read timed out.",
        "hub_network",
    ),
    ("RuntimeError", "HTTPSConnectionPool(host='hf.co', port=443): Read timed out. (read timeout=10)", "hub_network"),
    (
        "requests.exceptions.ConnectionError",
        (
            "HTTPSConnectionPool(host='hf.co', port=443): Max retries exceeded with url: /x (Caused by "
            "NameResolutionError(\"Failed to resolve 'hf.co' ([Errno -3] Temporary failure in name resolution)\"))"
        ),
        "hub_network",
    ),
    ("httpx.ConnectTimeout:TransportError", "_ssl.c:983: The handshake operation timed out", "hub_network"),
    ("urllib3.exceptions.IncompleteRead:HTTPError", "IncompleteRead(12 bytes read, 30 more expected)", "hub_network"),
    ("TimeoutError", "_ssl.c:989: The handshake operation timed out", "peer_timeout"),
    ("OSError", "We couldn't connect to 'https://huggingface.co' to load this file", "hub_network"),
    ("OSError", "You are trying to access a gated repo.\nMake sure to have access to it", "hub_auth"),
    ("huggingface_hub.errors.RepositoryNotFoundError", "404 Client Error. (Request ID: Root=1-6)", "hub_auth"),
    (
        "huggingface_hub.errors.LocalEntryNotFoundError",
        (
            "An error happened while trying to locate the file on the Hub and we cannot find the requested files in "
            "the local cache."
        ),
        "hub_network",
    ),
    ("botocore.exceptions.NoCredentialsError", "Unable to locate credentials", "hub_auth"),
    (
        "botocore.exceptions.ClientError",
        "An error occurred (AccessDenied) when calling the PutObject operation: Access Denied",
        "hub_auth",
    ),
    (
        "botocore.exceptions.ClientError",
        "An error occurred (SlowDown) when calling the PutObject operation (reached max retries: 4): Please reduce",
        "hub_network",
    ),
    ("botocore.exceptions.ClientError", "An error occurred (NoSuchKey) when calling the GetObject", "storage_missing"),
    (
        "botocore.exceptions.EndpointConnectionError:ConnectionError",
        'Could not connect to the endpoint URL: "https://b.s3.eu-west-1.amazonaws.com/"',
        "hub_network",
    ),
    (
        "wandb.errors.errors.UsageError",
        "api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "hub_auth",
    ),
    ("wandb.errors.errors.CommError", "Run initialization has timed out after 90.0 sec.", "hub_network"),
]

STORAGE = [
    ("RuntimeError", "Error(s) in loading state_dict for GPTModel:\n\tsize mismatch for wte.weight", "ckpt_mismatch"),
    ("RuntimeError", 'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a"', "ckpt_mismatch"),
    ("ValueError", "loaded state dict contains a parameter group that doesn't match the size", "ckpt_mismatch"),
    ("RuntimeError", "Missing key in checkpoint state_dict: model.layers.0.weight.", "ckpt_mismatch"),
    ("CheckpointingException", "Global shape mismatch for loaded (torch.Size([50304, 8]))", "ckpt_mismatch"),
    (
        "RuntimeError",
        "PytorchStreamReader failed reading zip archive: failed finding central directory",
        "ckpt_corrupt",
    ),
    ("UnpicklingError", "invalid load key, 'v'.", "ckpt_corrupt"),
    ("UnpicklingError", "Weights only load failed. In PyTorch 2.6, we changed the default value", "config_error"),
    ("safetensors.SafetensorError", "Error while deserializing header: MetadataIncompleteBuffer", "ckpt_corrupt"),
    ("RuntimeError", "unexpected EOF, expected 4259840 more bytes. The file might be corrupted.", "ckpt_corrupt"),
    ("EOFError", "Ran out of input", "ckpt_corrupt"),
    (
        "UnpicklingError",
        "Weights only load failed.\nWeightsUnpickler error: \n\nUnsupported operand 118",
        "ckpt_corrupt",
    ),
    (
        "CheckpointException",
        (
            "CheckpointException ranks:dict_keys([3])\nTraceback (most recent call last): (RANK 3)\n"
            "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/step_100/__3_0.distcp'"
        ),
        "ckpt_corrupt",
    ),
    ("RuntimeError", "PytorchStreamWriter failed writing file data/3: file write failed", "ckpt_save_failure"),
    ("RuntimeError", "[enforce fail at inline_container.cc:595] . unexpected pos 704 vs 640", "ckpt_save_failure"),
    ("ValueError", "No valid checkpoint found in output directory (out)", "ckpt_missing"),
    ("OSError", "Error no file named pytorch_model.bin, model.safetensors found in directory m.", "ckpt_missing"),
    ("RuntimeError", "received 0 items of ancdata", "resource_limit"),
    ("RuntimeError", "can't start new thread", "resource_limit"),
    ("RuntimeError", "DataLoader worker (pid(s) 101, 102) exited unexpectedly", "data_worker_died"),
    ("RuntimeError", "DataLoader worker (pid 7) is killed by signal: Segmentation fault. ", "data_worker_died"),
    ("RuntimeError", "One of the subprocesses has abruptly died during map operation.", "data_worker_died"),
    ("NameError", "Caught NameError in DataLoader worker process 0.\nOriginal Traceback", "data_exception"),
    ("KeyError", "Caught KeyError in DataLoader worker process 3.\nOriginal Traceback", "data_exception"),
    (
        "OSError",
        "Caught OSError in DataLoader worker process 1.\nOSError: [Errno 28] No space left on device",
        "storage_quota",
    ),
    (
        "datasets.exceptions.DatasetNotFoundError",
        "Dataset 'a/b' doesn't exist on the Hub or cannot be accessed",
        "data_missing",
    ),
    ("ValueError", "num_samples should be a positive integer value, but got num_samples=0", "data_missing"),
    ("ValueError", "mmap length is greater than file size", "data_corrupt"),
    ("ValueError", "cannot reshape array of size 1023 into shape (2,512)", "data_corrupt"),
    ("PIL.UnidentifiedImageError", "cannot identify image file <_io.BytesIO object>", "data_corrupt"),
    ("pyarrow.lib.ArrowInvalid", "Parquet magic bytes not found in footer.", "data_corrupt"),
]

PROGRAM = [
    ("ValueError", "The loss returned in `training_step` is nan or inf.", "numeric"),
    ("ValueError", "Loss is nan, stopping training", "numeric"),
    (
        "RuntimeError",
        (
            "Rank 3, node n, device 3, iteration 41: Unexpected result nan (message='found NaN in "
            "local grad norm for bucket #0 in backward pass before data-parallel communication collective')"
        ),
        "numeric",
    ),
    (
        "RuntimeError",
        "The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot",
        "numeric",
    ),
    ("RuntimeError", "Function 'LogSoftmaxBackward0' returned nan values in its 0th output.", "numeric"),
    ("RuntimeError", "probability tensor contains either `inf`, `nan` or element < 0", "numeric"),
    (
        "str",
        "iteration 12/ 100 | lm loss: 1.1E+01 | number of skipped iterations: 0 | number of nan iterations:   2 |",
        "numeric",
    ),
    ("Exception", "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.", "loss_scale"),
    ("FloatingPointError", "Minimum loss scale reached (0.0001). Your loss is probably exploding.", "loss_scale"),
    ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (4x512 and 768x10)", "shape_mismatch"),
    ("RuntimeError", "The expanded size of the tensor (5) must match the existing size (4)", "shape_mismatch"),
    (
        "RuntimeError",
        "The size of tensor a (2) must match the size of tensor b (32000) at non-singleton",
        "shape_mismatch",
    ),
    ("RuntimeError", "expected scalar type Half but found Float", "shape_mismatch"),
    ("RuntimeError", "mat1 and mat2 must have the same dtype, but got Double and Float", "shape_mismatch"),
    ("ValueError", "You selected an invalid accelerator name: `accelerator='foo'`.", "config_error"),
    (
        "RuntimeError",
        "Expected all tensors to be on the same device, but found at least two devices",
        "device_mismatch",
    ),
    ("RuntimeError", "element 0 of tensors does not require grad and does not have a grad_fn", "autograd_error"),
    (
        "RuntimeError",
        "Expected to have finished reduction in the prior iteration before starting a new",
        "autograd_error",
    ),
    ("ValueError", "Unrecognized configuration class <class 'X'> for this kind of AutoModel", "model_creation"),
    ("OSError", "bert-bse is not a local folder and is not a valid model identifier listed on", "model_creation"),
    (
        "ValueError",
        (
            "The checkpoint you are trying to load has model type `x` but Transformers does not recognize "
            "this architecture."
        ),
        "model_creation",
    ),
    ("AssertionError", "num_attention_heads (12) must be divisible by tensor_model_parallel_size (8)", "config_error"),
    (
        "ValueError",
        "Invalid start_preconditioning_step value: 20. Must be >= precondition_frequency=100.",
        "config_error",
    ),
    (
        "AssertionError",
        (
            "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
            "gradient_acc_step * world_size 32 != 4 * 2 * 8"
        ),
        "config_error",
    ),
    ("deepspeed.runtime.config.DeepSpeedConfigError", "DeepSpeed zero stage 4 is unknown", "config_error"),
    (
        "lightning.fabric.utilities.exceptions.MisconfigurationException",
        "No supported gpu backend found!",
        "config_error",
    ),
    (
        "TypeError",
        "TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'",
        "config_error",
    ),
    (
        "ValueError",
        "Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set",
        "config_error",
    ),
    ("ModuleNotFoundError", "No module named 'flash_attn'", "missing_module"),
    ("OSError", "libcudart.so.11.0: cannot open shared object file: No such file or directory", "missing_module"),
]

SCHEDULER = [
    (
        "str",
        "slurmstepd: error: *** STEP 561.17 ON node001 CANCELLED AT 2024-05-01T04:11:25 DUE TO TIME LIMIT ***",
        "time_limit",
    ),
    (
        "str",
        "[2026-10-05T15:40:31] error: *** JOB 168 ON n1 CANCELLED AT 2026-10-05T15:40:31 DUE TO PREEMPTION ***",
        "preempted",
    ),
    (
        "str",
        (
            "slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2024-05-01T04:11:25 DUE TO NODE FAILURE, SEE SLURMCTLD "
            "LOG FOR DETAILS ***"
        ),
        "node_fail",
    ),
    ("str", "slurmstepd: error: *** JOB 4 ON n1 CANCELLED AT 2024-05-01T04:11:25 ***", "cancelled"),
    ("str", "srun: error: Node failure on node001", "node_fail"),
    (
        "RuntimeError",
        "sbatch: error: Batch job submission failed: Invalid account or account/partition",
        "slurm_refused",
    ),
    (
        "RuntimeError",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "slurm_failure",
    ),
    ("RuntimeError", "squeue: error: Unable to contact slurm controller (connect failure)", "slurm_failure"),
    ("ray.exceptions.ActorDiedError:RayActorError", "The actor died because its node has died.", "ray_node_died"),
    (
        "ray.exceptions.ActorDiedError:RayActorError",
        "The actor died unexpectedly before finishing this task.",
        "ray_worker_died",
    ),
    ("ray.exceptions.OutOfMemoryError", "Memory on the node was 63.1GB / 64.0GB", "ray_host_oom"),
    ("ray.exceptions.RuntimeEnvSetupError", "Failed to set up runtime environment.", "ray_setup"),
    ("RuntimeError", "The node is a straggler and exits.", "straggler"),
    ("SignalException", "Process 4026234 got signal: 15", "cancelled"),
    (
        "ChildFailedError",
        "train.py FAILED\nRoot Cause (first observed failure): exitcode : 1 (pid: 12)",
        "launcher_child",
    ),
    ("ProcessExitedException", "process 1 terminated with signal SIGKILL", "killed"),
    ("ProcessExitedException", "process 1 terminated with signal SIGSEGV", "crash_signal"),
    (
        "BrokenProcessPool",
        "A process in the process pool was terminated abruptly while the future was running",
        "killed",
    ),
]

# What sounds like a failure of some part and is none of it, or says nothing that is known.
TRAPS = [
    ("ValueError", "config has no attribute data", "user_exception"),
    ("KeyError", "memory", "user_exception"),
    ("KeyError", "rendezvous", "user_exception"),
    ("AttributeError", "'Config' object has no attribute 'loss is nan'", "user_exception"),
    ("ImportError", "cannot import name 'rendezvous' from 'torch.distributed'", "missing_module"),
    ("RuntimeError", "CUDA graph: batch shape unchanged", "user_exception"),
    ("RuntimeError", "lm loss: 2.1E+00 | grad norm: 0.4 | number of nan iterations:   0 |", "user_exception"),
    ("AssertionError", "No inf checks were recorded for this optimizer.", "user_exception"),
    ("RuntimeError", "transport/nvls.cc:621 NCCL INFO Cuda 1 'invalid argument'", "user_exception"),
    ("RuntimeError", "failed to read oom_kill event of system.slice", "user_exception"),
    ("RuntimeError", "communicator setup: 0 error(s), nothing failed", "user_exception"),
    ("RuntimeError", "cancelled at step 3 due to time limit of solver", "user_exception"),
    ("RuntimeError", "NET/IB: Got non-fatal async event: port active", "user_exception"),
    ("ValueError", "loss 1.2, information follows", "user_exception"),
    ("ValueError", "expected a dataset with more samples", "user_exception"),
    ("TimeoutError", "evaluation took longer than 30 s", "user_exception"),
    ("EOFError", "EOF when reading a line", "user_exception"),
    ("myproject.errors.TimeoutError", "my own limit of 5 s", "user_exception"),
    ("myproject.errors.ConnectionError", "the graph has no connection", "user_exception"),
    ("myproject.errors.ValidationError", "accuracy fell", "user_exception"),
    ("RuntimeError", "Distributed package: timeout is 600 s, memory 80 GiB", "user_exception"),
]
