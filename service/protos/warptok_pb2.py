"""The messages of warptok.proto; their fields are described there and typed in the .pyi file."""

from service.protos.loading import load_messages

globals().update(load_messages("warptok"))
