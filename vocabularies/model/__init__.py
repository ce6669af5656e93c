"""A vocabulary as a value: its types, checks, canonical form and lookup tables.

`vocabulary.Vocabulary` is frozen and hashable. `types` has its models and fields, `checks` finds
their faults, `canonical` writes the bytes that the digest hashes, `tables` makes flat arrays of a
vocabulary for engines, `byte_alphabet` is GPT-2's spelling of bytes.

All other packages import it. A Vocabulary that exists has no fault; equal fields give equal
digests.
"""
