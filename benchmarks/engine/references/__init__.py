"""The ids of other libraries, with which every id is compared before anything is timed.

`published_vocabularies` reads the timed vocabularies, `reference_libraries` encodes with tiktoken,
tokenizers and fastokens, and `proofs` compares and keeps the digests of proved ids.
"""
