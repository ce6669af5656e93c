"""Manages vocabularies by name, in memory and in a store of uploads.

`vocabulary_view` defines the read-only interface, which front ends implement as well; `registry`
adds loading and storing. `entries` describes named vocabularies. `names` defines valid names and
manages aliases. `vocabulary_store` stores uploads in a folder or an object store (`store_files`),
and `store_following` applies the changes that other services make in it. `changes` numbers the
changes of names, so that front ends can follow them. `management` uploads, deletes, loads and
unloads vocabularies for the routes of all protocols. `reports` describes vocabularies to clients.
`tokenizer_config` reads special tokens and chat templates, which `tokenizer_configs` stores, and
`model_folder` reads a model's folder.

The operations and the routes of all protocols use these modules.

A digest identifies the contents of a vocabulary. A request keeps the vocabulary and the template
that it found, even if the name is replaced or deleted meanwhile.
"""
