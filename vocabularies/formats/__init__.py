"""Reads and writes vocabularies as files.

`vocabulary_files` finds the format of a file and calls its reader, and `folders` the files of a
model's folder; `huggingface`, `tiktoken` and
`word_lists` are families of formats; GPT-2's pair of files (`vocab_and_merges`) and the canonical
form (`canonical_files`) are a module each. The registry of the service, the command line and the
built-in vocabularies call it.

Nothing in a file is executed, archives and pickles are refused before anything is parsed, and a
wrong file is a VocabularyError with the place of every fault. A writer refuses a vocabulary that
its format cannot hold. Knows neither HTTP nor where files come from.
"""

from vocabularies.formats.vocabulary_files import FORMATS as FORMATS
from vocabularies.formats.vocabulary_files import WRITABLE_FORMATS as WRITABLE_FORMATS
from vocabularies.formats.vocabulary_files import describe_ignored as describe_ignored
from vocabularies.formats.vocabulary_files import read_vocabulary as read_vocabulary
from vocabularies.formats.vocabulary_files import write_vocabulary as write_vocabulary
