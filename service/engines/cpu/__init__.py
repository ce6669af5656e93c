"""The CPU engine: an encoder for each kind of vocabulary, and what is common to all of them.

engine.py is the engine; selection.py chooses the fastest encoder of a vocabulary that agrees with
the reference: characters.py and kmers.py in NumPy, bpe/ by libraries, the reference itself where
none agrees. Other strands, begin and end tokens and truncation are the engine's, not an encoder's.
verification.py compares an engine with the reference on given texts.

Always: an encoder gives a text's own ids; rows of one call have the same options. Knows neither
HTTP nor a device.
"""
