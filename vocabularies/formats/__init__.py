"""Reads and writes vocabularies as files.

`vocabulary_files` detects the format of a file and calls its reader; `folders` finds the vocabulary
files in a model's folder. `huggingface`, `sentencepiece`, `tiktoken` and `word_lists` are families
of formats. `vocab_and_merges` handles GPT-2's pair of files, and `canonical_files` the canonical
form. The readers share `parsing`, `json_chunks` and `typed_json` for JSON, `bpe_vocabulary` for
merges, and `special_token_roles`. The registry of the service, the command line and the built-in
vocabularies call these.

Nothing in a file is executed. Archives and pickles are refused before anything is parsed. An
invalid file raises a VocabularyError with the place of every fault. A writer refuses a vocabulary
that its format cannot represent. The package does not depend on HTTP or on where files come from.
"""

from vocabularies.formats.vocabulary_files import FORMATS as FORMATS
from vocabularies.formats.vocabulary_files import WRITABLE_FORMATS as WRITABLE_FORMATS
from vocabularies.formats.vocabulary_files import read_vocabulary as read_vocabulary
from vocabularies.formats.vocabulary_files import read_with_notes as read_with_notes
from vocabularies.formats.vocabulary_files import with_configuration as with_configuration
from vocabularies.formats.vocabulary_files import write_vocabulary as write_vocabulary
