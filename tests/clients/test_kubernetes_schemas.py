"""The manifests and the chart follow the schemas of Kubernetes, KEDA and Prometheus."""

from __future__ import annotations

import json

import pytest

from tests.clients.test_clients import run_client
from tests.deploy.helm_templates import Chart
from tests.deploy.test_kubernetes import CHART, VALUES, Resource, kustomize

pytestmark = pytest.mark.slow


def render_all() -> list[Resource]:
    """Render the resources of all deployments, equal ones once."""
    chart = Chart(CHART)
    made = [each for name in VALUES for each in chart.render("warptok", *VALUES[name])]
    made += [each for name in VALUES for each in kustomize(name)]
    return list({json.dumps(each, sort_keys=True): each for each in made}.values())


def misspell(resources: list[Resource]) -> list[Resource]:
    """Return a resource of each kind that has a specification, with a field that no schema has."""
    by_kind = {each["kind"]: each for each in resources if "spec" in each}
    return [each | {"spec": each["spec"] | {"misspelled": 1}} for each in by_kind.values()]


def test_resources_follow_the_schemas_of_the_oldest_and_the_newest_version(tmp_path):
    path = tmp_path / "resources.json"
    resources = render_all()
    path.write_text(json.dumps({"valid": resources, "faulty": misspell(resources)}))
    run_client("kubernetes", str(path), script="kubernetes_schemas")
