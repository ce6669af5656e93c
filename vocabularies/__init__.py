"""Vocabularies: what they are, which ids they give, their files and how they are learnt.

The folders, from the lowest to the highest: `preprocessing`, `model`, `batch`, `reference`,
`formats`, `builtin`, `sequences`, `motifs`, `training`; each imports only lower ones. The GPU
engine, the service and users in Python call them.

Nothing here knows an engine or HTTP. It imports the standard library, NumPy and
ahocorasick_rs.
"""
