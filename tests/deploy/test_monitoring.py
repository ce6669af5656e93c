"""Dashboard, alerts and runbook use existing metrics, and have data under real load."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import threading
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gpu.errors import OutOfMemory
from service.core import errors
from service.core.settings import Settings
from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.engine import HybridEngine
from service.observability.closed_connections import REASONS
from service.observability.metric_definitions import COUNTED, FAMILIES
from service.security.api_keys import add_key
from tests.deploy.promql import firing, minutes, series_of
from tests.service.http.connection.test_protocol import listening
from tests.support.data_files import ROOT
from tests.support.gpus.fake_gpu import FakeGpu
from tests.support.gpus.several_fake_gpus import open_together
from tests.support.server_process import Server, server_process
from tests.support.waiting import GIVEN_UP_S, run, until, wait_until

DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/dashboards/warptok.json").read_text())
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
RULES = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
STORIES = yaml.safe_load((DEPLOY / "alerts_test.yml").read_text())["tests"]
SHOWN = {title: [each["expr"] for each in panel["targets"]] for title, panel in PANELS.items()}
ALERTS = {rule["alert"]: rule["expr"] for rule in RULES}
EXPRESSIONS = [*ALERTS.values(), *(each for shown in SHOWN.values() for each in shown)]
# What Prometheus' own client says of a process, and Prometheus of a target.
OTHERS = {
    "up",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_open_fds",
    "process_max_fds",
}
NOT_SHOWN = {"warptok_self_test_texts"}
SELECTOR = re.compile(r"\b((?:warptok|process|python)_\w+|up)\b(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!=|=)"([^"]*)"')
GROUPING = re.compile(r"\bby \(([^)]*)\)")
TARGET_LABELS = {"job", "instance", "process", "le"}
KNOWN_REASONS: dict[str, set[str]] = {
    "warptok_fallbacks_total": {
        "out_of_memory",
        "device_error",
        "resting",
        "lost",
        "not_resident",
    },
    "warptok_connections_closed_total": set(REASONS),
}


def selectors(expression: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Each metric of an expression with its matchers."""
    return [(name, MATCHER.findall(given)) for name, given in SELECTOR.findall(expression)]


def family_of(name: str) -> str:
    if name in FAMILIES or name in OTHERS:
        return name
    short = re.sub("_(bucket|sum|count)$", "", name)
    return short if short in COUNTED and COUNTED[short].bounds else ""


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_and_label_in_rules_and_dashboard_exists(expression: str) -> None:
    found = selectors(expression)
    assert found
    known = set(TARGET_LABELS)
    for name, matchers in found:
        assert family_of(name), name
        own = set(FAMILIES[family_of(name)].labels) if family_of(name) in FAMILIES else set()
        known |= own
        assert {label for label, _, _ in matchers} <= own | TARGET_LABELS
    for labels in GROUPING.findall(expression):
        assert set(labels.split(", ")) <= known


def test_every_metric_is_on_the_dashboard_or_known_not_to_be() -> None:
    shown = {family_of(name) for exprs in SHOWN.values() for e in exprs for name, _ in selectors(e)}
    assert set(FAMILIES) - shown == NOT_SHOWN


def test_the_variables_are_labels_that_there_are_and_each_panel_obeys_them() -> None:
    assert list(VARIABLES) == ["datasource", "instance", "vocabulary", "key"]
    for name, variable in list(VARIABLES.items())[1:]:
        metric, label = re.fullmatch(r"label_values\((\S+), (\w+)\)", variable["query"]).groups()
        family = family_of(selectors(metric)[0][0])
        assert label == name and label in {*FAMILIES[family].labels, "instance"}
    for title, shown in SHOWN.items():
        assert PANELS[title]["datasource"]["uid"] == "${datasource}"
        for expression in shown:
            for name, matchers in selectors(expression):
                wanted = {("instance", "=~", "$instance")}
                for label in set(FAMILIES[family_of(name)].labels if name in FAMILIES else ()):
                    if label in VARIABLES:
                        wanted.add((label, "=~", f"${label}"))
                assert wanted <= set(matchers), (title, name)


def test_no_panel_covers_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        own = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] + place["w"] <= 24 and not own & taken, panel["title"]
        taken |= own


def test_every_reason_that_an_alert_waits_for_can_come() -> None:
    codes = {each.code for each in errors.ServiceError.__subclasses__()}
    for expression in ALERTS.values():
        for name, matchers in selectors(expression):
            for label, _, value in matchers:
                if label == "reason":
                    known = KNOWN_REASONS.get(name, codes)
                    assert set(value.split("|")) <= known, value


def test_every_alert_has_its_part_of_the_runbook_and_its_story() -> None:
    headings = re.findall(r"^## (\w+)$", (DEPLOY / "RUNBOOK.md").read_text(), re.MULTILINE)
    assert headings == list(dict.fromkeys(headings))
    assert set(headings) == set(ALERTS)
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"deploy/RUNBOOK.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("page", "ticket")
    firing = STORIES[1]["promql_expr_test"][0]["exp_samples"]
    assert {re.search('"(.*)"', each["labels"]).group(1) for each in firing} == set(ALERTS)


def test_the_runbook_names_panels_and_settings_that_there_are() -> None:
    text = (DEPLOY / "RUNBOOK.md").read_text()
    names = {name.removeprefix("WARPTOK_").lower() for name in re.findall("WARPTOK_[A-Z_]+", text)}
    assert names <= set(Settings.model_fields)
    for title in re.findall(r"\*([A-Z][^*]+)\*", text.replace("**", "")):
        assert title in PANELS or title == "This is a bug", title


@pytest.mark.slow
def test_alerts_fire_when_they_should_and_only_then() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    command = [promtool, "test", "rules", str(DEPLOY / "alerts_test.yml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story["name"].replace(" ", "-"))
def test_each_story_ends_as_it_says_without_promtool_too(story: dict[str, Any]) -> None:
    series = [series_of(each["series"], each["values"]) for each in story["input_series"]]
    end = story["promql_expr_test"][0]
    now = 60 * int(end["eval_time"].removesuffix("h"))
    fires = {
        rule["alert"]
        for rule in RULES
        if firing(rule["expr"], minutes(rule.get("for", "0m")), series, now)
    }
    told = {re.search('"(.*)"', each["labels"]).group(1) for each in end["exp_samples"]}
    assert fires == told


class BusyGpu(FakeGpu):
    """Times its stages, has no room for some batches, and fails on its first batch of 40 rows."""

    fails = True

    def encode(self, vocabulary: Any, batch: Any) -> Any:
        """Encode as the CPU engine does."""
        if self.fails and len(batch) == 40 and batch.row_bytes(0).startswith(b"many letters"):
            self.fails = False
            raise RuntimeError("told to fail once")
        self.stage_times._measured.append(("merge", 0.001))
        if len(batch) == 7:
            raise OutOfMemory("told that seven rows do not fit")
        return super().encode(vocabulary, batch)


async def put_load(url: str, key: str) -> None:
    """Send some requests of every kind, errors included."""
    body = {"vocabulary": "gpt2", "text": "Hello, world!"}
    headers = {"x-api-key": key}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=GIVEN_UP_S) as client:
        while (await client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.02)
        for _ in range(3):
            assert (await client.post("/v1/encode", json=body)).status_code == 200
        for rows in (40, 7):
            batch = {"vocabulary": "gpt2", "texts": ["many letters " * 9] * rows}
            assert (await client.post("/v1/encode/batch", json=batch)).status_code == 200
        refused = {"vocabulary": "gpt2", "texts": ["<|endoftext|>", "x"], "special": "refuse"}
        assert (await client.post("/v1/encode/batch", json=refused)).status_code == 200
        assert (await client.post("/v1/encode", json={"vocabulary": "x"})).status_code == 422
        assert (await client.get("/nothing")).status_code == 404


def samples_of(exposition: str) -> list[tuple[str, dict[str, str], float]]:
    found = re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", exposition, re.MULTILINE)
    return [(name, dict(re.findall(r'(\w+)="(.*?)"', given)), float(v)) for name, given, v in found]


def have_data(expressions: list[str], samples: list[tuple[str, dict[str, str], float]]) -> bool:
    """Return whether every selector finds a sample, above zero if a rate is shown."""
    for expression in expressions:
        for name, matchers in selectors(expression):
            found = [
                value
                for each, labels, value in samples
                if each == name
                and all(
                    matches(labels.get(n, ""), o, re.sub(r"\$\w+", ".*", v)) for n, o, v in matchers
                )
            ]
            if not found or ("rate(" in expression and not any(found)):
                return False
    return True


def matches(value: str, operator: str, wanted: str) -> bool:
    if operator == "=~":
        return re.fullmatch(wanted, value) is not None
    return (value == wanted) == (operator == "=")


def test_every_panel_has_data_over_real_load(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    key = add_key(keys, "alice", ("encode",))
    settings = {"preload": "gpt2", "api_keys_file": keys, "store_dir": tmp_path / "store"}

    async def scenario() -> None:
        cpu = CpuEngine()
        gpus = open_together(BusyGpu(cpu), BusyGpu(cpu))
        engine = HybridEngine(cpu, gpus, crossover_bytes=600)
        engine.gate = threading.Event()  # type: ignore[attr-defined]  # As a fake engine has.
        async with listening(engine, **settings) as (app, port):
            url = f"http://127.0.0.1:{port}"
            await put_load(url, key)
            counts = app.service.metrics.counts  # The lag of the loop is looked at now and then.
            await until(lambda: counts()["warptok_event_loop_lag_seconds"][()].total)
            async with httpx.AsyncClient(base_url=url, timeout=GIVEN_UP_S) as client:
                samples = samples_of((await client.get("/metrics")).text)
            empty = {t for t, shown in SHOWN.items() if not have_data(shown, samples)}
            # Nobody has left, nobody was cut off, no chat was rendered, and gRPC and TLS are off.
            chats = {
                "Wait of chats for their template, p99",
                "Known share of chats",
                "Sections of chats",
            }
            others = {"Requests that came, and that went", "Connections", "Certificate"}
            assert empty == others | chats
            app.service.metrics.gauges.certificate_remaining_s = lambda: 60.0
            app.service.metrics.gauges.grpc_connections = lambda: (1, 2)
            app.service.metrics.count_cancelled()
            app.service.metrics.template_wait_seconds.add(0.001)
            app.service.metrics.count_sections(True, 1, 100)
            app.service.metrics.count_closed_connection("silent")
            samples = samples_of(app.service.metrics.exposition()[0].decode())
            assert all(have_data(SHOWN[title], samples) for title in empty)

    run(scenario)


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Several processes whose metrics have a port of their own."""
    settings = {
        "WARPTOK_PRELOAD": "gpt2",
        "WARPTOK_METRICS_PORT": "0",
        "WARPTOK_FRONTENDS": "2",
        "WARPTOK_LOG_FORMAT": "json",
        "WARPTOK_ACCESS_LOG": "true",
    }
    with server_process(tmp_path_factory.mktemp("apart"), settings) as running:
        yield running


@pytest.mark.slow
def test_metrics_of_all_processes_have_a_port_of_their_own(apart: Server) -> None:
    body = {"vocabulary": "gpt2", "text": "canary"}
    for number in range(20):
        headers = {"x-request-id": f"mine-{number}"}
        url = apart.url + "/v1/encode"
        answer = httpx.post(url, json=body, headers=headers, timeout=GIVEN_UP_S)
        assert answer.status_code == 200
    assert httpx.get(apart.url + "/metrics", timeout=GIVEN_UP_S).status_code == 404
    port = re.search(r"metrics on 127\.0\.0\.1:(\d+)", apart.log.read_text()).group(1)
    url = f"http://127.0.0.1:{port}/metrics"

    def samples() -> list[tuple[str, dict[str, str], float]]:
        with urllib.request.urlopen(url, timeout=GIVEN_UP_S) as answer:
            return samples_of(answer.read().decode())

    def num_answered() -> float:
        answered = [row for row in samples() if row[0] == "warptok_requests_total"]
        return sum(v for _, labels, v in answered if labels["route"] == "/v1/encode")

    def num_of_vocabulary() -> float:
        name = "warptok_vocabulary_request_duration_seconds_count"
        found = [row for row in samples() if row[0] == name and row[1]["vocabulary"] == "gpt2"]
        return sum(value for _, _, value in found)

    def described() -> set[tuple[str, str]]:
        found = [labels for name, labels, _ in samples() if name == "warptok_vocabulary_info"]
        return {(labels["name"], labels["process"]) for labels in found}

    def told() -> dict[str, dict[str, Any]]:
        *lines, _ = apart.log.read_text().split("\n")  # The last has not ended.
        made = [json.loads(line) for line in lines if line[:1] == "{"]
        return {line["request_id"]: line for line in made if "request_id" in line}

    # Both come a moment after the answer.
    wait_until(lambda: num_answered() >= 20, "counting")
    wait_until(lambda: {f"mine-{i}" for i in range(20)} <= told().keys(), "a line for each")
    assert num_answered() == num_of_vocabulary() == 20
    wait_until(lambda: described() == {("gpt2", "engine")}, "the engine process to know its use")
    assert {labels["process"] for _, labels, _ in samples()} == {"engine", "front-0", "front-1"}
    lines = told()
    for number in range(20):
        assert lines[f"mine-{number}"]["status"] == 200
        assert lines[f"mine-{number}"]["vocabulary"] == "gpt2"
        assert lines[f"mine-{number}"]["process"].startswith("front-")
    assert "canary" not in apart.log.read_text()
