"""Engines, which compute ids, and what all engines share.

base.py says what an engine is: a `Codec` that encodes and decodes, a `VocabularyHost`, and a
`DeviceSharing`. The batcher's runners call it; the registry loads vocabularies on it. The engines
themselves are in cpu/ and hybrid/, and the front end's in multiprocess/remote_engine.py.

Always: every id is the reference's id; a vocabulary answers only after its self-test (selftest.py);
a row that cannot be encoded is refused alone (fault_isolation.py). Every method may be called from
several threads at once. tests/engines holds all engines to one contract.
"""
