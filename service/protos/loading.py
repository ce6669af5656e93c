"""Makes message classes from the descriptors that protoc wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def load_messages(name: str) -> dict[str, Any]:
    """Make the classes of all messages in ``name.binpb``, and DESCRIPTOR, the file's descriptor."""
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString((Path(__file__).parent / f"{name}.binpb").read_bytes())
    pool = descriptor_pool.Default()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindFileByName(files.file[-1].name)
    classes = {
        message: message_factory.GetMessageClass(found)
        for message, found in descriptor.message_types_by_name.items()
    }
    return {"DESCRIPTOR": descriptor, **classes}
