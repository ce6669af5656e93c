"""Checks Kubernetes resources against the schemas of Kubernetes, KEDA and the Prometheus operator.

Argument: a JSON file with resources that are valid, and others of which each has a fault.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cloudcoil.models.keda.v1alpha1 import ScaledObject
from cloudcoil.models.prometheus_operator.v1 import PodMonitor, PrometheusRule
from kubernetes_validate import ValidationError, latest_version, validate

OLDEST = "1.27"
CUSTOM = {model.__name__: model for model in (ScaledObject, PodMonitor, PrometheusRule)}


def find_fault(resource: dict[str, Any]) -> str | None:
    """Return what a resource has that its schema does not allow; None if nothing."""
    try:
        if resource["kind"] in CUSTOM:
            read = CUSTOM[resource["kind"]].model_validate(resource)
            written = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
            # The model leaves out fields that it does not know.
            return None if written == resource else f"read as {written}"
        for version in (OLDEST, latest_version()):
            validate(resource, version, strict=True)
    except ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message}"
    except ValueError as error:  # Of pydantic.
        return str(error)
    return None


def main() -> None:
    """Check the resources of the file; exit with 1 if one is not as expected."""
    resources = json.loads(Path(sys.argv[1]).read_text())
    faults = [
        f"{each['kind']} {each['metadata']['name']}: {fault}"
        for each in resources["valid"]
        if (fault := find_fault(each))
    ]
    faults += [
        f"{each['kind']}: its fault is not found"
        for each in resources["faulty"]
        if find_fault(each) is None
    ]
    if faults:
        sys.exit("\n".join(faults))
    print(f"{len(resources['valid'])} resources, all as expected")


if __name__ == "__main__":
    main()
