"""The manifests and the chart name only what the service and the images have."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from service.cli.parser import make_parser
from service.core.settings import PREFIX, Settings
from service.multiprocess.supervisor import STOP_S
from service.observability.metric_definitions import FAMILIES
from service.security.scopes import OPEN
from tests.deploy.helm_templates import Chart
from tests.support.data_files import ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
CHART = DEPLOY / "helm/warptok"
DOCUMENT = ROOT / "docs/deploy/kubernetes.md"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
ALERTS = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
PROFILES = ("cpu", "gpu", "render")
ALL_VALUES: dict[str, Any] = {
    "keysSecret": "warptok-keys",
    "tls": {"secret": "warptok-pods"},
    "store": {"size": "20Gi", "storageClassName": "files"},
    "podMonitor": True,
    "prometheusRule": True,
    "runtimeClassName": "nvidia",
    "affinity": {"podAffinity": {}},
    "nodeSelector": {"a": "b"},
    "imagePullSecrets": [{"name": "registry"}],
    "env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4317"}],
    "ingress": {"enabled": True, "className": "nginx", "annotations": {"a": "b"}},
}
VALUES: dict[str, list[dict[str, Any]]] = {
    "cpu": [],
    "gpu": [yaml.safe_load((CHART / "values-gpu.yaml").read_text())],
    "render": [yaml.safe_load((CHART / "values-render.yaml").read_text())],
    "hpa": [{**ALL_VALUES, "autoscaling": "hpa"}],
    "keda": [{"store": {"existingClaim": "mine"}, "autoscaling": "keda"}],
}
COMPONENTS = {
    "hpa": ("keys", "tls", "store", "monitoring", "hpa", "ingress"),
    "keda": ("keda",),
}
EXTERNAL = {"model", "mine", "warptok-keys", "warptok-pods", "warptok-tls"}
"""Claims and secrets that the user makes."""

Resource = dict[str, Any]


def kustomize(profile: str) -> list[Resource]:
    """Build an overlay, or the overlay `cpu` with components."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    with tempfile.TemporaryDirectory() as made:
        folder = KUBERNETES / "overlays" / profile
        if profile in COMPONENTS:
            folder = Path(made).resolve()
            above = os.path.relpath(KUBERNETES, folder)  # Kustomize takes no absolute path.
            components = [f"{above}/components/{name}" for name in COMPONENTS[profile]]
            content = {"resources": [f"{above}/overlays/cpu"], "components": components}
            (folder / "kustomization.yaml").write_text(json.dumps(content))
        done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(
    scope="module", params=[f"{tool}-{name}" for tool in ("kustomize", "chart") for name in VALUES]
)
def resources(request: pytest.FixtureRequest) -> list[Resource]:
    """All resources of one deployment."""
    tool, _, profile = request.param.partition("-")
    if tool == "kustomize":
        return kustomize(profile)
    return Chart(CHART).render("warptok", *VALUES[profile])


def of_kind(resources: list[Resource], kind: str) -> list[Resource]:
    return [each for each in resources if each["kind"] == kind]


def pod_template(resources: list[Resource]) -> Resource:
    [deployment] = of_kind(resources, "Deployment")
    template: Resource = deployment["spec"]["template"]
    return template


def containers(resources: list[Resource]) -> list[Resource]:
    """The containers that run first, and then the service's."""
    spec = pod_template(resources)["spec"]
    [service] = spec["containers"]
    return [*spec.get("initContainers", []), service]


def environment(container: Resource) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container.get("env", [])}


def all_values(node: Any, key: str) -> Iterator[Any]:
    """Find the values of a key at any depth."""
    if isinstance(node, dict):
        if key in node:
            yield node[key]
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from all_values(each, key)


def is_selected(labels: dict[str, str], selector: dict[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def test_every_selector_matches_the_pods_and_every_resource_has_the_label(
    resources: list[Resource],
) -> None:
    labels = pod_template(resources)["metadata"]["labels"]
    for resource in resources:
        own = resource["metadata"].get("labels", {})
        assert own.get("app.kubernetes.io/name") == "warptok" or resource["kind"] == "ConfigMap"
        if resource["kind"] == "Service":
            assert is_selected(labels, resource["spec"]["selector"])
        if resource["kind"] == "NetworkPolicy":
            assert is_selected(labels, resource["spec"]["podSelector"]["matchLabels"])
        elif resource["kind"] != "PersistentVolumeClaim":
            for selector in all_values(resource, "matchLabels"):
                assert is_selected(labels, selector)


def test_every_port_is_one_that_the_service_listens_on(resources: list[Resource]) -> None:
    service = containers(resources)[-1]
    ports = {each["name"]: each["containerPort"] for each in service["ports"]}
    assert ports == {
        "http": int(re.findall(r"WARPTOK_PORT=(\d+)", DOCKERFILE)[0]),
        "grpc": Settings.model_fields["grpc_port"].default,
        "metrics": int(environment(service)["WARPTOK_METRICS_PORT"]),
    }
    for kind in ("Service", "NetworkPolicy", "PodMonitor"):
        for resource in of_kind(resources, kind):
            key = "targetPort" if kind == "Service" else "port"
            named = [name for name in all_values(resource["spec"], key) if isinstance(name, str)]
            assert named
            assert set(named) <= set(ports)
    for ingress in of_kind(resources, "Ingress"):
        [backend] = all_values(ingress, "service")
        [served] = of_kind(resources, "Service")
        assert backend["name"] == served["metadata"]["name"]
        assert backend["port"]["name"] in {port["name"] for port in served["spec"]["ports"]}


def test_probes_and_metrics_ask_for_paths_that_need_no_key(resources: list[Resource]) -> None:
    service = containers(resources)[-1]
    paths = {name: service[name]["httpGet"]["path"] for name in service if name.endswith("Probe")}
    assert paths == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    schemes = {service[name]["httpGet"].get("scheme", "HTTP") for name in paths}
    speaks_tls = "WARPTOK_TLS_CERTIFICATE" in environment(service)
    assert schemes == {"HTTPS" if speaks_tls else "HTTP"}
    assert {each["httpGet"]["port"] for each in service.values() if "httpGet" in each} <= {"http"}
    metrics = set(all_values(of_kind(resources, "PodMonitor"), "path"))
    assert metrics <= {"/metrics"}
    assert metrics | set(paths.values()) <= OPEN


def test_every_variable_is_a_setting_with_a_value_that_it_can_have(
    resources: list[Resource],
) -> None:
    for container in containers(resources):
        given = {k: v for k, v in environment(container).items() if k.startswith(PREFIX)}
        values = {name.removeprefix(PREFIX).lower(): value for name, value in given.items()}
        assert set(values) <= set(Settings.model_fields)
        Settings(**values)  # type: ignore[arg-type]  # Texts, as in the environment.
    assert pod_template(resources)["spec"]["enableServiceLinks"] is False


def test_the_pod_is_killed_only_after_it_could_have_drained(resources: list[Resource]) -> None:
    times = ("lame_duck_s", "drain_timeout_s")
    drain_s = sum(Settings.model_fields[name].default for name in times)
    assert pod_template(resources)["spec"]["terminationGracePeriodSeconds"] > drain_s + STOP_S


def test_pods_are_restricted_as_the_image_allows(resources: list[Resource]) -> None:
    pod = pod_template(resources)["spec"]
    [user] = set(re.findall(r"^USER (\d+)", DOCKERFILE, re.MULTILINE))
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": int(user),
        "runAsGroup": int(user),
        "fsGroup": int(user),
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for container in containers(resources):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert not list(all_values(pod["volumes"], "hostPath"))


def test_every_mount_is_of_a_volume_and_the_image_can_write_where_it_must(
    resources: list[Resource],
) -> None:
    pod = pod_template(resources)["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert len(volumes) == len(pod["volumes"])
    mounted = set()
    for container in containers(resources):
        writable = set()
        for mount in container["volumeMounts"]:
            mounted.add(mount["name"])
            if not mount.get("readOnly"):
                writable.add(mount["mountPath"])
        assert {"/tmp", "/var/lib/warptok"} <= writable
        assert writable <= {"/tmp", "/var/lib/warptok", "/var/cache/warptok"}
        if container["image"].endswith("gpu"):
            assert re.findall(r"CUPY_CACHE_DIR=(\S+)", DOCKERFILE)[0] in writable
    assert mounted == set(volumes)
    for name, volume in volumes.items():
        assert len(volume) == 2, f"{name} has one source"


def test_everything_that_is_named_exists(resources: list[Resource]) -> None:
    names = {(each["kind"], each["metadata"]["name"]) for each in resources}
    assert len(names) == len(resources)
    known = {name for _, name in names} | EXTERNAL
    assert set(all_values(resources, "claimName")) <= known
    assert set(all_values(resources, "secretName")) <= known
    for volume in pod_template(resources)["spec"]["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in names
    for target in all_values(resources, "scaleTargetRef"):
        assert ("Deployment", target["name"]) in names


def test_only_one_decides_the_number_of_replicas(resources: list[Resource]) -> None:
    [deployment] = of_kind(resources, "Deployment")
    scalers = of_kind(resources, "HorizontalPodAutoscaler") + of_kind(resources, "ScaledObject")
    assert len(scalers) + ("replicas" in deployment["spec"]) == 1


def test_pods_are_scaled_by_metrics_that_there_are(resources: list[Resource]) -> None:
    for scaler in of_kind(resources, "HorizontalPodAutoscaler"):
        *_, pods = scaler["spec"]["metrics"]
        assert pods["pods"]["metric"]["name"] in FAMILIES
        tenth = Settings.model_fields["max_queue_bytes"].default // 10
        assert pods["pods"]["target"]["averageValue"] == str(tenth)
    for scaler in of_kind(resources, "ScaledObject"):
        [query] = all_values(scaler, "query")
        assert set(re.findall(r"warptok_\w+", query)) == {
            "warptok_queue_bytes",
            "warptok_queue_limit_bytes",
        }
        assert set(re.findall(r"warptok_\w+", query)) <= set(FAMILIES)


def test_alerts_are_the_ones_of_the_rules_and_select_the_job(resources: list[Resource]) -> None:
    for rule in of_kind(resources, "PrometheusRule"):
        assert rule["spec"] == ALERTS
    for monitor in of_kind(resources, "PodMonitor"):
        labels = pod_template(resources)["metadata"]["labels"]
        job = labels[monitor["spec"]["jobLabel"]]
        assert set(re.findall(r'job="(\w+)"', json.dumps(ALERTS).replace("\\", ""))) == {job}


def test_images_have_the_version_and_a_stage_of_the_dockerfile(resources: list[Resource]) -> None:
    for container in containers(resources):
        name, _, tag = container["image"].partition(":")
        version, _, stage = tag.partition("-")
        assert (name, version) == ("warptok", VERSION)
        assert f" AS {stage}\n" in DOCKERFILE
        needs_gpu = "nvidia.com/gpu" in container["resources"]["limits"]
        assert needs_gpu == (stage == "gpu")


def test_the_render_service_renders_for_the_folder_that_it_mounts() -> None:
    for resources in (Chart(CHART).render("r", *VALUES["render"]), kustomize("render")):
        [service] = containers(resources)
        arguments = make_parser().parse_args(service["args"])
        assert (arguments.command, arguments.served_model_name) == ("render", ["model"])
        [mount] = [each for each in service["volumeMounts"] if each["name"] == "model"]
        assert str(arguments.folder) == mount["mountPath"]


@pytest.mark.parametrize("profile", PROFILES)
def test_chart_and_overlay_make_the_same_pods(profile: str) -> None:
    def comparable(resources: list[Resource]) -> Any:
        pod = json.loads(json.dumps(pod_template(resources)["spec"]))
        del pod["topologySpreadConstraints"]  # Its selector has the release as well.
        for container in pod.get("initContainers", []) + pod["containers"]:
            container.pop("imagePullPolicy", None)
            container.get("env", []).sort(key=lambda each: each["name"])
            container["volumeMounts"].sort(key=lambda each: each["name"])
            for mount in container["volumeMounts"]:
                if not mount.get("subPath"):
                    mount.pop("subPath", None)
        pod["volumes"].sort(key=lambda each: each["name"])
        return pod

    chart = Chart(CHART).render("warptok", *VALUES[profile])
    assert comparable(chart) == comparable(kustomize(profile))


@pytest.mark.parametrize("profile", VALUES)
def test_helm_renders_the_chart_as_the_tests_do(profile: str, tmp_path: Path) -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    command = [helm, "template", "warptok", str(CHART)]
    for number, values in enumerate(VALUES[profile]):
        file = tmp_path / f"{number}.yaml"
        file.write_text(json.dumps(values))
        command += ["-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    def by_kind(resources: list[Resource]) -> dict[str, Resource]:
        return {each["kind"]: each for each in resources}

    rendered = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert by_kind(rendered) == by_kind(Chart(CHART).render("warptok", *VALUES[profile]))


def test_the_schema_of_values_allows_what_there_is_and_refuses_numbers_as_settings() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    chart = Chart(CHART)
    assert set(schema["properties"]) - {"global"} == set(chart.values)
    for layers in (*VALUES.values(), [chart.values]):
        for values in layers:
            jsonschema.validate(values, schema)
    for wrong in ({"settings": {"WARPTOK_PORT": 1}}, {"setings": {}}, {"autoscaling": "vpa"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


@pytest.mark.parametrize("path", sorted(KUBERNETES.rglob("kustomization.yaml")), ids=str)
def test_every_file_that_a_kustomization_names_exists(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    named = content.get("resources", []) + content.get("components", [])
    named += [each["path"] for each in content.get("patches", []) if "path" in each]
    named += [file for each in content.get("configMapGenerator", []) for file in each["files"]]
    for name in named:
        target = path.parent / name
        assert target.is_file() or (target / "kustomization.yaml").is_file(), name


def test_only_real_settings_are_named() -> None:
    settings = {PREFIX + name.upper() for name in Settings.model_fields}
    files = [p for p in (*KUBERNETES.rglob("*"), *CHART.rglob("*"), DOCUMENT) if p.is_file()]
    assert len(files) > 30
    for path in files:
        named = set(re.findall(r"\bWARPTOK_[A-Z_]*[A-Z]\b", path.read_text()))
        assert named <= settings, path


def test_yaml_in_the_document_can_be_read() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        assert isinstance(yaml.safe_load(block), dict | list)
