"""Answers /apply-template of llama.cpp with the text that a chat template renders.

As in llama.cpp, a final message of the assistant is the beginning of the answer: its text follows
the generation prompt, and no end token follows it.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from service.apis.dialects.chat_prompt import ChatBody, render_chat_text
from service.apis.dialects.common import parse_body, read_request
from service.apis.dialects.templates.chat_messages import convert_messages
from service.apis.dialects.templates.content_format import join_parts
from service.batching.work import GONE
from service.core.errors import InvalidRequest
from service.http.error_responses import make_dialect_response
from service.http.json_response import make_json_response

router = APIRouter(tags=["dialects"])


@router.post("/apply-template")
async def apply_template(http_request: Request) -> Response:
    """Render a chat as text with the vocabulary's template; nothing is encoded."""
    try:
        request = await read_request(http_request)
        body = parse_body(ChatBody, request)
        entry = await request.find_entry(body.model)
        begin = "" if body.continue_final_message else _take_begin_of_answer(body)
        text = await render_chat_text(request, entry, body)
        return make_json_response({"prompt": text + begin})
    except GONE:
        raise
    except Exception as error:
        return make_dialect_response(error, "llama_cpp")


def _take_begin_of_answer(body: ChatBody) -> str:
    """Remove the final message if it is text of the assistant, and return its text; otherwise "".

    Raises:
        InvalidRequest: the last two messages are both of the assistant.
    """
    last = body.messages[-1]
    if last.get("role") != "assistant" or last.get("tool_calls") or len(body.messages) == 1:
        return ""
    if body.messages[-2].get("role") == "assistant":
        message = "Cannot have 2 or more assistant messages at the end of the list."
        raise InvalidRequest(message, "/messages")
    [converted] = join_parts(convert_messages([last]))
    body.messages = body.messages[:-1]
    body.add_generation_prompt = True
    content: Any = converted["content"]
    return str(content)
