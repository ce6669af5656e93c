"""Vocabularies: their fields, the ids that they define, their files and their training.

The folders, from the lowest to the highest: `preprocessing`, `model`, `batch`, `reference`,
`formats`, `builtin`, `sequences`, `motifs`, `training`; each imports only lower ones. The GPU
engine, the service and users in Python call them.

Nothing here knows an engine or HTTP. It imports the standard library, NumPy and
ahocorasick_rs.
"""
