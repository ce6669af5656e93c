"""The CPU engine, and an encoder for each kind of vocabulary.

`engine` is the engine. `selection` chooses the fastest encoder that agrees with the reference on a
vocabulary: symbols/ (characters and k-mers) and dna/ compute in C++, and bpe/ calls libraries;
where none agrees, the reference encodes. native/ has the code that these C++ extensions share.
`decode` turns ids into bytes. `verification` compares any engine with the reference on given texts.

An encoder gives the ids of the texts themselves, and all rows of a call have the same options. The
engine adds begin and end tokens, truncates, and computes the other strand, unless the encoder does
it in the same step. Nothing here knows HTTP or a device.
"""
