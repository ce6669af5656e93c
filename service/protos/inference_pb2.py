"""The messages of inference.proto, the Open Inference Protocol; typed in the .pyi file."""

from service.protos.loading import load_messages

globals().update(load_messages("inference"))
