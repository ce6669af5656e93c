"""Checks that the packages of an optional feature are installed.

`pip install warptok` installs all of them; an image that needs only a part of the service may omit
some. Modules import such a package only if it is installed, and the features that need it call
`check_installed` first.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from service.core.errors import NotInstalled

EXTRAS = {
    "arrow": ("pyarrow",),
    "dna": ("ahocorasick_rs", "dnaio"),
    "grpc": ("google.protobuf", "grpc", "grpc_health", "grpc_reflection", "grpc_status"),
}
"""The packages of each extra, by the names that Python imports."""


def check_installed(feature: str, *extras: str) -> None:
    """Check that the packages of some extras are installed.

    Args:
        feature: the name of the feature that needs the packages, for the error message.
        extras: keys of EXTRAS.

    Raises:
        NotInstalled: a package is missing.
    """
    if not (missing := [extra for extra in extras if not _is_installed(extra)]):
        return
    install = f"pip install 'warptok[{','.join(missing)}]'"
    raise NotInstalled(f"{feature} need packages that are not installed: {install}")


@cache
def _is_installed(extra: str) -> bool:
    try:
        return all(find_spec(name) is not None for name in EXTRAS[extra])
    except ModuleNotFoundError:  # A parent package is missing.
        return False
