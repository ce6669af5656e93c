"""The CPU engine, with an encoder for each kind of vocabulary.

`engine` is the engine. `selection` chooses the fastest encoder whose ids equal the reference's for
a vocabulary: symbols/ (characters and k-mers), dna/ and text/ compute in C++, and bpe/ calls a
library; if none passes, the reference encodes. native/ contains the code that these C++ extensions
share. `decode` converts ids to bytes. `verification` compares any engine on given texts with its
witness: the reference, or libraries (`witness`).

An encoder returns the ids of the texts alone; all rows of a call have the same options. The engine
adds begin and end tokens, truncates, and makes reverse complements, unless the encoder does so in
the same step. This package depends on neither HTTP nor a device.
"""
