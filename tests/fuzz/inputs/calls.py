"""The valid gRPC calls that fuzzing starts from, of every method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from service.apis.oip.tensors import make_bytes_tensor
from service.protos import inference_pb2 as oip
from service.protos import warptok_pb2 as pb
from tests.fuzz.inputs.messages import CANARY, DNA, TEXT, Message
from tests.support.inputs.tokenizer_documents import ABC, encoded
from vocabularies.batch.batch import Batch

OWN, OIP = "/warptok.v1.Tokenizer/", "/inference.GRPCInferenceService/"


def _call(path: str, *asked: Any) -> Message:
    bodies = tuple(message.SerializeToString() for message in asked) or (b"",)
    return Message("gRPC", path, (), bodies, "proto")


def calls() -> Iterator[Message]:
    """Yield a valid call of every method."""
    batch = Batch([TEXT, "", DNA])
    data, offsets = batch.data.tobytes(), batch.offsets.tobytes()
    options = pb.Options(return_offsets=True, max_length=7, truncation_side="left", dtype="uint16")
    texts = pb.EncodeBatchRequest(vocabulary="gpt2", data=data, offsets=offsets, options=options)
    dna = pb.EncodeBatchRequest(vocabulary="mtdna6", data=data, offsets=offsets)
    ids = np.array([15496, 11, 995], np.int32).tobytes()
    yield _call(OWN + "Encode", pb.EncodeRequest(vocabulary="gpn", text=TEXT.encode()))
    yield _call(OWN + "EncodeBatch", texts)
    yield _call(OWN + "EncodeStream", texts, dna, dna)
    yield _call(OWN + "Count", dna)
    yield _call(OWN + "Decode", pb.DecodeRequest(vocabulary="gpt2", ids=ids))
    rows = np.array([0, 1, 3]).tobytes()
    yield _call(
        OWN + "DecodeBatch", pb.DecodeBatchRequest(vocabulary="gpt2", ids=ids, offsets=rows)
    )
    channel = np.zeros(len(DNA), np.float32).tobytes()
    windows = pb.WindowsRequest(vocabulary="mtdna6", sequence=DNA.encode(), window=8, stride=3)
    windows.channel, windows.circular, windows.junction = channel, True, "prepend"
    yield _call(OWN + "Windows", windows)
    chunks = pb.ChunksRequest(vocabulary="gpt2", text=b"One two three four", chunk_size=3)
    yield _call(OWN + "Chunks", chunks)
    yield _call(OWN + "ListVocabularies", pb.ListVocabulariesRequest())
    yield _call(OWN + "GetVocabulary", pb.GetVocabularyRequest(vocabulary="gpn"))
    file = pb.PutVocabularyRequest(vocabulary="mine", replace=True, file="tokenizer.json")
    half = encoded(ABC)
    first, second = (pb.PutVocabularyRequest(data=d) for d in (half[:99], half[99:]))
    yield _call(OWN + "PutVocabulary", file, first, second)
    yield _call(OWN + "DeleteVocabulary", pb.DeleteVocabularyRequest(vocabulary="mine"))
    yield from _oip_calls(data)


def _oip_calls(data: bytes) -> Iterator[Message]:
    tensor = oip.ModelInferRequest.InferInputTensor
    raw = make_bytes_tensor("text", Batch([TEXT, DNA])).data.tobytes()
    asked = oip.ModelInferRequest(
        model_name="gpt2",
        id=CANARY,
        inputs=[tensor(name="text", datatype="BYTES", shape=[2])],
        raw_input_contents=[raw],
        outputs=[oip.ModelInferRequest.InferRequestedOutputTensor(name="input_ids")],
    )
    asked.parameters["max_length"].int64_param = 4
    typed = oip.ModelInferRequest(model_name="gpt2.decode")
    given = typed.inputs.add(name="input_ids", datatype="INT32", shape=[3])
    given.contents.int_contents.extend([15496, 11, 995])
    yield _call(OIP + "ModelInfer", asked)
    yield _call(OIP + "ModelInfer", typed)
    yield _call(OIP + "ModelStreamInfer", asked, typed)
    named = {"name": "gpn", "version": "1"}
    yield _call(OIP + "ModelReady", oip.ModelReadyRequest(**named))
    yield _call(OIP + "ModelMetadata", oip.ModelMetadataRequest(**named))
    yield _call(OIP + "ModelConfig", oip.ModelConfigRequest(**named))
    yield _call(OIP + "ModelStatistics", oip.ModelStatisticsRequest())
    yield _call(OIP + "RepositoryIndex", oip.RepositoryIndexRequest(ready=True))
    yield _call(OIP + "RepositoryModelLoad", oip.RepositoryModelLoadRequest(model_name="gpn"))
    yield _call(OIP + "RepositoryModelUnload", oip.RepositoryModelUnloadRequest(model_name="gpn"))
    register = oip.SystemSharedMemoryRegisterRequest(name="r", key=f"/{CANARY}", byte_size=64)
    yield _call(OIP + "SystemSharedMemoryRegister", register)
    yield _call(OIP + "SystemSharedMemoryStatus", oip.SystemSharedMemoryStatusRequest(name="r"))
    yield _call(OIP + "SystemSharedMemoryUnregister", oip.SystemSharedMemoryUnregisterRequest())
    yield _call(OIP + "CudaSharedMemoryRegister", oip.CudaSharedMemoryRegisterRequest(name="r"))
    yield _call(OIP + "CudaSharedMemoryStatus", oip.CudaSharedMemoryStatusRequest())
    yield _call(OIP + "CudaSharedMemoryUnregister", oip.CudaSharedMemoryUnregisterRequest())
    for name in ("ServerLive", "ServerReady", "ServerMetadata"):
        yield _call(OIP + name)
