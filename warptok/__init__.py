"""warptok: exact token ids of text and DNA, computed in this process or by a service.

    tok = warptok.load("gpt2")              a Tokenizer, on a GPU if there is one
    client = warptok.Client(url, "gpt2")    the same methods, answered by a service

This package is the public interface. `service`, `gpu` and `vocabularies` implement it; their names
may change in any release. Importing it imports neither the web framework nor torch, CuPy, Arrow or
httpx. docs/python.md shows how to use it.
"""

from vocabularies.sequences.augmentation import Augmentation as Augmentation
from warptok import mtdna as mtdna
from warptok.clients.async_client import AsyncClient as AsyncClient
from warptok.clients.async_grpc_client import AsyncGrpcClient as AsyncGrpcClient
from warptok.clients.client import Client as Client
from warptok.clients.grpc_client import GrpcClient as GrpcClient
from warptok.errors import DeadlinePassed as DeadlinePassed
from warptok.errors import DeviceUnavailable as DeviceUnavailable
from warptok.errors import DigestDiffers as DigestDiffers
from warptok.errors import InvalidRequest as InvalidRequest
from warptok.errors import NotAllowed as NotAllowed
from warptok.errors import NotInstalled as NotInstalled
from warptok.errors import RowRefused as RowRefused
from warptok.errors import ServiceFailed as ServiceFailed
from warptok.errors import TooLarge as TooLarge
from warptok.errors import Unavailable as Unavailable
from warptok.errors import UnknownVocabulary as UnknownVocabulary
from warptok.errors import WarptokError as WarptokError
from warptok.inputs import read_batches as read_batches
from warptok.loading import load as load
from warptok.results import DeviceBatch as DeviceBatch
from warptok.results import EncodedBatch as EncodedBatch
from warptok.results import PaddedBatch as PaddedBatch
from warptok.results import TextChunks as TextChunks
from warptok.tokenizer import Tokenizer as Tokenizer
