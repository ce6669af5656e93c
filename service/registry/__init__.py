"""Keeps vocabularies by name, in memory and in a store of uploads.

`vocabulary_view` is the read-only side, which a front end has too; `registry` adds loading and
storing. `entries` describes what a name stands for. `vocabulary_store` keeps uploads in a folder or
an object store (`store_files`), and `store_following` applies what other services change there.
`changes` notes which names have changed, so that front ends can follow. `management` puts, deletes,
loads and unloads vocabularies for the routes of every protocol. `reports` describes vocabularies to
clients, and `tokenizer_config` reads special tokens and chat templates.

Called by operations and by the routes of all protocols.

A name's contents are identified by a digest. A request keeps the vocabulary that it found, even
when the name is replaced or deleted meanwhile.
"""
