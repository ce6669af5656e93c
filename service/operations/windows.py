"""The operation windows, which cuts one sequence into overlapping windows of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import orjson
from numpy.typing import NDArray

from service.batching.work import EncodeWork, Result
from service.core.call import Call, Times
from service.core.errors import InvalidRequest, RowRefused, TooLarge
from service.operations.context import Service
from service.operations.encode import write_kernel_time, write_unknown_share
from service.operations.operation import Operation, Render, make_work
from service.operations.rendering.json_stream import flat_json, head, matrix_json
from service.operations.rendering.offset_units import convert_spans
from service.operations.schemas import WindowsRequest, WindowsResponse
from service.operations.unknown_ids import find_share_of_result
from service.registry.entries import LoadedVocabulary
from vocabularies.batch.batch import Encoded, EncodeOptions
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.sequences.window_layout import LayoutError, WindowLayout, make_layout
from vocabularies.sequences.windows import Windows, token_positions


def plan_windows(
    service: Service, call: Call, entry: LoadedVocabulary, request: WindowsRequest
) -> tuple[EncodeWork, Callable[[Result[Encoded]], Windows]]:
    """Create the work item of a request, and the function that cuts its result into windows.

    Raises:
        ServiceError: the request is refused; the returned function may raise it as well.
    """
    layout = _layout(request, entry.vocabulary)
    options = EncodeOptions(
        add_special_tokens=False,
        reverse_complement=request.reverse_complement,
        circular=layout.circular,
        spans=True,
        uppercase=request.uppercase,
    )
    work = make_work(service, call, EncodeWork, entry, [request.sequence], options, "/sequence")
    return work, partial(_cut, request, layout, service.settings.max_window_ids)


def _plan(
    service: Service, call: Call, entry: LoadedVocabulary, request: WindowsRequest
) -> tuple[EncodeWork, Render]:
    work, cut = plan_windows(service, call, entry, request)
    return work, lambda result: _write_windows(entry, request, result, cut(result), call.times)


WINDOWS = Operation(WindowsRequest, _plan)


def _layout(request: WindowsRequest, vocabulary: Vocabulary) -> WindowLayout:
    with refused_layouts():
        layout = make_layout(
            vocabulary,
            window=request.window,
            stride=request.stride,
            circular=request.circular,
            junction=request.junction,
            add_cls=request.add_cls,
        )
    num_bases = len(request.sequence)
    if request.channel is not None and len(request.channel) != num_bases:
        message = f"has {len(request.channel)} values, but the sequence has {num_bases} bases"
        raise InvalidRequest(message, "/channel")
    if request.channel_name in WindowsResponse.model_fields:
        raise InvalidRequest("is already the name of another field of the answer", "/channel_name")
    return layout


@contextmanager
def refused_layouts() -> Iterator[None]:
    """Convert a LayoutError of the block to a refusal of the request.

    Raises:
        InvalidRequest: the block raised a LayoutError; the refusal names the option.
    """
    try:
        yield
    except LayoutError as error:
        raise InvalidRequest(str(error), f"/{error.option}") from error


def _cut(
    request: WindowsRequest, layout: WindowLayout, max_window_ids: int, result: Result[Encoded]
) -> Windows:
    """Cut a result into windows.

    Raises:
        ServiceError: the sequence is refused, or its windows have too many ids.
    """
    if result.begin in result.errors:
        raise RowRefused(result.errors[result.begin], "/sequence")
    encoded = result.output
    assert encoded.spans is not None
    begin, end = result.offsets[result.begin], result.offsets[result.begin + 1]
    width = len(layout.prefix) + request.window
    num_ids = -(-int(end - begin) // request.stride) * width
    if num_ids > max_window_ids:
        message = f"the answer would have {num_ids} ids; max_window_ids is {max_window_ids}"
        raise TooLarge(message, "/window")
    positions = token_positions(
        convert_spans(encoded.spans[begin:end], request.sequence, "codepoints"),
        circular=layout.circular,
        reverse_complement=request.reverse_complement,
    )
    return layout.cut(encoded.ids[begin:end], positions, _channel(request))


def _channel(request: WindowsRequest) -> NDArray[np.float32] | None:
    """Return the request's channel as float32[L]; None if it has none.

    Raises:
        InvalidRequest: a value is not a finite 32-bit number.
    """
    if request.channel is None:
        return None
    values = np.array(request.channel, np.float64)
    wrong = np.flatnonzero(~(np.abs(values) <= np.finfo(np.float32).max))
    if len(wrong):
        raise InvalidRequest("must be a finite 32-bit number", f"/channel/{wrong[0]}")
    return values.astype(np.float32)


def _write_windows(
    entry: LoadedVocabulary,
    request: WindowsRequest,
    result: Result[Encoded],
    windows: Windows,
    times: Times,
) -> Iterator[bytes]:
    yield head(entry, b"input_ids")
    yield from matrix_json(windows.input_ids)
    yield b',"attention_mask":'
    yield from matrix_json(windows.attention_mask)
    yield b',"position_ids":'
    yield from matrix_json(windows.position_ids)
    if windows.channel is not None:
        yield b"," + orjson.dumps(request.channel_name) + b":"
        yield from matrix_json(windows.channel)
    yield b',"starts":'
    yield from flat_json(windows.starts)
    num_tokens = result.offsets[result.begin + 1] - result.offsets[result.begin]
    yield b',"num_tokens":%d,"engine":"%b"' % (num_tokens, result.engine.encode())
    yield from write_kernel_time(request, times)
    yield from write_unknown_share(find_share_of_result(entry.vocabulary, result))
    yield b"}"
