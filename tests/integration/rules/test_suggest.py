"""`trainwarden rules suggest` with a real Prometheus that has a history."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.prometheus import running_prometheus
from trainwarden.clients.http import HttpClient
from trainwarden.clients.prometheus import PrometheusClient
from trainwarden.rules.command import main
from trainwarden.rules.suggest import Suggestion, Threshold, budgets, lines, suggest
from trainwarden.stack.binaries import Tools
from trainwarden.stack.ports import free_port

pytestmark = pytest.mark.tools
MINUTE, HOUR, DAY = 60, 3600, 86_400
# A whole step of the queries, two hours ago: the history is in blocks, and Prometheus deletes none of it.
END = int(time.time()) // HOUR * HOUR - 2 * HOUR
BEGIN = END - 2 * DAY
HOT = 'gpu_temperature_celsius{instance="n1"}'
COLD = 'gpu_temperature_celsius{instance="n2"}'
FREE = 'training_filesystem_avail_bytes{instance="n1"}'
SILENCE = 'run:training_silence_seconds:current{run_id="r1"}'


def temperature(t: int) -> float:
    """70, and 80 for five minutes every twelve hours."""
    return 80 if (t - BEGIN) % (12 * HOUR) in range(HOUR, HOUR + 5 * MINUTE) else 70


HISTORY: dict[str, Callable[[int], float]] = {
    HOT: temperature,
    COLD: lambda t: 50,
    FREE: lambda t: 4e12 if (t - BEGIN) % DAY in range(HOUR, 2 * HOUR) else 9e12,
    SILENCE: lambda t: 40 + (t // MINUTE) % 5,
    'run:training_running:bool{run_id="r1"}': lambda t: 1,
    'training_stale_threshold_seconds{run_id="r1"}': lambda t: 600,
    'infiniband_retries{instance="n1"}': lambda t: 0,
}


@pytest.fixture(scope="module")
def url(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    families = []
    for name in dict.fromkeys(series.partition("{")[0] for series in HISTORY):
        families.append(f"# TYPE {name} gauge\n")
        for series, value in HISTORY.items():
            if series.startswith(f"{name}{{"):
                families += [f"{series} {value(t):g} {t}\n" for t in range(BEGIN, END + MINUTE, MINUTE)]
    (folder / "history.om").write_text("".join([*families, "# EOF\n"]))
    subprocess.run(
        [tools.promtool, "tsdb", "create-blocks-from", "openmetrics", folder / "history.om", folder / "data"],
        check=True,
        capture_output=True,
    )
    with running_prometheus(tools, folder, {"global": {"scrape_interval": "1m"}}) as client:
        yield client.url


@pytest.fixture
def client(url: str) -> PrometheusClient:
    return PrometheusClient(HttpClient(url, 60))


def suggested(client: PrometheusClient, threshold: Threshold, margin: float = 1.2) -> Suggestion:
    (found,) = suggest(client, [threshold], end=END, days=2, margin=margin)
    return found


def test_what_is_usual_is_that_of_the_worst_series_without_its_rare_peaks(client: PrometheusClient) -> None:
    found = suggested(client, Threshold("gpu.celsius", "celsius", 75, "gpu_temperature_celsius"))
    assert (found.usual, found.proposed, found.series) == (70, 84, 2)
    assert (found.alerts_now, found.alerts_proposed) == (4, 0)


def test_a_peak_that_is_shorter_than_the_alert_waits_is_no_alert(client: PrometheusClient) -> None:
    for wait, alerts in ((3 * MINUTE, 4), (10 * MINUTE, 0)):
        threshold = Threshold("gpu.celsius", "celsius", 75, "gpu_temperature_celsius", wait_seconds=wait)
        assert suggested(client, threshold).alerts_now == alerts


def test_one_that_lasts_over_midnight_is_one(client: PrometheusClient) -> None:
    found = suggested(client, Threshold("gpu.celsius", "celsius", 60, "gpu_temperature_celsius"))
    assert found.alerts_now == 1


def test_one_that_began_before_the_days_that_are_counted_is_one(client: PrometheusClient) -> None:
    threshold = Threshold("gpu.celsius", "celsius", 60, "gpu_temperature_celsius")
    (found,) = suggest(client, [threshold], end=END + 0.5, days=1, margin=1.2)
    assert found.alerts_now == 1


def test_a_floor_is_proposed_below_what_is_usual(client: PrometheusClient) -> None:
    threshold = Threshold("disk.free", "bytes", 5e12, "training_filesystem_avail_bytes", is_ceiling=False)
    found = suggested(client, threshold, margin=2)
    assert (found.usual, found.proposed) == (4e12, 2e12)
    assert (found.alerts_now, found.alerts_proposed) == (2, 0)


def test_a_proposal_stays_within_the_bounds_of_its_value(client: PrometheusClient) -> None:
    threshold = Threshold("gpu.celsius", "celsius", 75, "gpu_temperature_celsius", most=80)
    assert suggested(client, threshold).proposed == 80


def test_what_was_never_seen_has_no_proposal(client: PrometheusClient) -> None:
    threshold = Threshold("efa.retransmits", "count", 1, "efa_retransmitted_packets_total")
    assert list(suggest(client, [threshold], end=END, days=2, margin=2)) == []


@pytest.mark.parametrize("is_ceiling", [True, False])
def test_where_the_usual_value_is_zero_nothing_is_proposed(client: PrometheusClient, is_ceiling: bool) -> None:
    threshold = Threshold("infiniband.retries", "count", 100, "infiniband_retries", is_ceiling=is_ceiling, least=1)
    found = suggested(client, threshold)
    assert (found.usual, found.proposed, found.alerts_proposed) == (0, None, None)
    text = "\n".join(lines([found], [], days=2))
    assert yaml.safe_load(text) == {"values": None}
    assert "infiniband.retries: no proposal, since what is usual is not above zero" in text


def test_a_short_history_is_said_to_be_short(client: PrometheusClient) -> None:
    threshold = Threshold("gpu.celsius", "celsius", 75, "gpu_temperature_celsius")
    (whole,) = suggest(client, [threshold], end=END, days=2, margin=1.2)
    assert whole.minutes == 2 * DAY // MINUTE
    assert "history" not in "\n".join(lines([whole], [], days=2))
    (short,) = suggest(client, [threshold], end=BEGIN + 9.5 * MINUTE, days=2, margin=1.2)
    assert short.minutes == 10
    text = "\n".join(lines([short], [], days=2))
    assert "the history has 10 minutes, less than a day" in text
    assert "of 2 series, seen for 10 minutes;" in text


def test_budgets_that_runs_state_themselves_are_named_for_their_environment(client: PrometheusClient) -> None:
    (stale,) = suggest(client, budgets(client, END, 2), end=END, days=2, margin=2)
    assert (stale.threshold.name, stale.threshold.present, stale.usual, stale.proposed) == ("stale", 600, 44, 88)
    text = "\n".join(lines([], [stale], days=2))
    assert yaml.safe_load(text) == {"values": None}
    assert (
        "#   stale: 88 s; at most 44 in 99 % of the worst day of 1 series; 0 alerts with 600 now, 0 with this" in text
    )


def test_the_command_writes_a_file_of_values_that_build_takes(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yml"
    assert main(["suggest", "--prometheus", url, "--days", "3", "--out", str(file)]) == 0
    assert f"budgets of runs in {file}" in capsys.readouterr().out
    assert main(["build", "--values", str(file), "--out", str(tmp_path / "rules")]) == 0


def test_a_prometheus_that_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suggest", "--prometheus", f"http://127.0.0.1:{free_port()}"]) == 1
    assert "Prometheus is unreachable" in capsys.readouterr().err


def test_a_file_of_a_token_that_is_not_there_is_named_with_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert main(["suggest", "--prometheus", url, "--token-file", "/none"]) == 2
    assert capsys.readouterr().err == "trainwarden rules: --token-file /none: No such file or directory\n"


@pytest.mark.parametrize("url", ["prometheus:9090", "http://127.0.0.1:99999", "http://reader:a-secret@127.0.0.1:9090"])
def test_what_is_no_address_is_refused_without_its_password(capsys: pytest.CaptureFixture[str], url: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["suggest", "--prometheus", url])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "argument --prometheus: expected http://HOST:PORT, without a password" in error
    assert "a-secret" not in error
