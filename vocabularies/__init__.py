"""Vocabularies: their fields, how they encode texts, their files and their training.

The folders, from the lowest to the highest: `preprocessing`, `model`, `batch`, `reference`,
`formats`, `builtin`, `sequences`, `motifs`, `training`; each imports only lower ones. The GPU
engine, the service and users in Python call them.

The package does not depend on an engine or on HTTP. It imports only the standard library, NumPy and
ahocorasick_rs.
"""
