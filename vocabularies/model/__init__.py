"""A vocabulary as a value: its types, checks, canonical form and lookup tables.

`vocabulary.Vocabulary` is immutable and hashable. `types` defines its models and fields, `checks`
finds their faults, `canonical` writes the bytes that the digest hashes, `tables` makes flat arrays
of a vocabulary for engines, and `byte_alphabet` maps bytes to the characters of GPT-2's files.

All other packages import this one. The constructor of Vocabulary raises an error if a field is
invalid. Vocabularies with equal fields have equal digests.
"""
