"""Files of vocabularies <-> Vocabulary.

`vocabulary_files` finds the format of a file and calls its reader; `huggingface`, `tiktoken` and
`word_lists` are families of formats, GPT-2's pair of files and the canonical form a module each.
The registry of the service, the command line and the built-in vocabularies call it.

Nothing in a file is executed, archives and pickles are refused before anything is parsed, and a
wrong file is a VocabularyError with the place of every fault. A writer refuses a vocabulary that
its format cannot hold. Knows neither HTTP nor where files come from.
"""

from vocabularies.formats.vocabulary_files import FORMATS, read_vocabulary, write_vocabulary

__all__ = ["FORMATS", "read_vocabulary", "write_vocabulary"]
