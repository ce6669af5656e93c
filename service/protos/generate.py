"""Generates the .binpb and .pyi files of every .proto file in this folder; needs grpcio-tools."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def generate(folder: Path) -> None:
    """Write ``NAME.binpb`` and ``NAME_pb2.pyi`` of each .proto file here into a folder.

    Raises:
        RuntimeError: protoc refused a file; it has printed the reason.
    """
    from grpc_tools import protoc

    for source in sorted(FOLDER.glob("*.proto")):
        arguments = [
            "protoc",
            f"--proto_path={FOLDER}",
            f"--descriptor_set_out={folder / source.stem}.binpb",
            f"--pyi_out={folder}",
            source.name,
        ]
        if protoc.main(arguments):
            raise RuntimeError(f"protoc refused {source.name}")


if __name__ == "__main__":
    generate(FOLDER)
    sys.exit(0)
