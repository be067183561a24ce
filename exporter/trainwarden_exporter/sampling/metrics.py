"""The metrics of the exporter itself."""

from trainwarden_exporter.core.metric import gauge

TRAINWARDEN_COLLECTOR_SUCCESS = gauge(
    "trainwarden_collector_success",
    "collector",
    "0/1",
    "1 if the last sample of each of the collector's devices is good.",
    "the exporter",
    "trainwarden_collector_success == 0",
)
TRAINWARDEN_COLLECTOR_DURATION_SECONDS = gauge(
    "trainwarden_collector_duration_seconds",
    "collector",
    "seconds",
    "Duration of the last sample, of the slowest device; of one that hangs: so far.",
    "the exporter",
    "topk(3, trainwarden_collector_duration_seconds)",
)
TRAINWARDEN_COLLECTOR_LAST_SUCCESS_TIMESTAMP_SECONDS = gauge(
    "trainwarden_collector_last_success_timestamp_seconds",
    "collector",
    "Unix seconds",
    "When the last good sample was finished, of the device whose sample is oldest.",
    "the exporter",
    "time() - trainwarden_collector_last_success_timestamp_seconds > 300",
)
TRAINWARDEN_COLLECTOR_STUCK = gauge(
    "trainwarden_collector_stuck",
    "collector device call",
    "1",
    "A device that has not answered within its deadline, and the call it is in; absent while all answer.",
    "the exporter",
    "trainwarden_collector_stuck == 1",
)
TRAINWARDEN_EXPORTER_RELEASED = gauge(
    "trainwarden_exporter_released",
    "",
    "0/1",
    "1 while the exporter has released the devices, so that they can be reset.",
    "the exporter",
    "trainwarden_exporter_released == 1",
)
TRAINWARDEN_CONFIG_LAST_RELOAD_SUCCESSFUL = gauge(
    "trainwarden_config_last_reload_successful",
    "file",
    "0/1",
    "1 if the configuration file, config or web, is in use; 0 while an older one is: it is invalid or takes a restart.",
    "the exporter",
    "trainwarden_config_last_reload_successful == 0",
)
TRAINWARDEN_CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS = gauge(
    "trainwarden_config_last_reload_success_timestamp_seconds",
    "file",
    "Unix seconds",
    "When the configuration in use was read.",
    "the exporter",
    "time() - trainwarden_config_last_reload_success_timestamp_seconds < 600",
)
TRAINWARDEN_BUILD_INFO = gauge(
    "trainwarden_build_info",
    "version component python",
    "1",
    "Version that is running; always 1.",
    "the exporter",
    "count by (version) (trainwarden_build_info)",
)
