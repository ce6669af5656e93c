"""Every call that decodes follows the decoder of an uploaded file, or gives what was encoded."""

from __future__ import annotations

import json

import httpx
import pytest

from service.cli.parser import main
from service.engines.cpu.engine import CpuEngine
from tests.support.app_client import serving
from tests.support.inputs.tokenizer_documents import document, encoded
from tests.support.waiting import run
from vocabularies.formats import read_vocabulary
from warptok import load

ENGINE = CpuEngine()
# As of a file that the library's trainer has written: it sets no decoder.
FILE = encoded(document({"n": 0, "o": 1, "w": 2, "no": 3, "now": 4, "ill": 5}, ["n o", "no w"]))
IDS = [4, 5]
TEXTS = {"file": "now ill", "inverse": "nowill"}


async def texts_of(client: httpx.AsyncClient, name: str) -> set[str]:
    """Decode by all calls over HTTP, and return their texts."""

    async def post(path: str, **body: object) -> dict:
        answer = await client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    found = [(await post("/v1/decode", vocabulary=name, ids=IDS))["text"]]
    found += (await post("/v1/decode/batch", vocabulary=name, ids=[IDS, IDS]))["texts"]
    for path in ("/detokenize", "/v1/detokenize"):
        found.append((await post(path, model=name, tokens=IDS))["prompt"])
    found += await post("/decode", model=name, ids=IDS)
    tensor = {"name": "input_ids", "datatype": "INT32", "shape": [1, 2], "data": [IDS]}
    answer = await post(f"/v2/models/{name}.decode/infer", inputs=[tensor])
    found += next(each["data"] for each in answer["outputs"] if each["name"] == "text")
    choice = {"index": 0, "token_ids": IDS, "finish_reason": "stop"}
    body = {"request_id": "r", "choices": [choice]}
    answer = await post("/v1/chat/completions/derender", model=name, generate_response=body)
    found.append(answer["choices"][0]["message"]["content"])
    text, state = "", None
    for number, token_id in enumerate(IDS):
        end = "stop" if number + 1 == len(IDS) else None
        choice = {"index": 0, "token_ids": [token_id], "finish_reason": end}
        answer = await post(
            "/v1/completions/derender",
            model=name,
            stream=True,
            generate_chunk={"request_id": "r", "choices": [choice]},
            stream_state=state,
        )
        state = answer["stream_state"]
        text += answer["chunk"]["choices"][0]["text"]
    return {*found, text}


@pytest.mark.parametrize("decoder", TEXTS)
def test_all_calls_decode_alike(decoder: str):
    async def scenario():
        async with serving(ENGINE) as (client, _):
            path = "/v1/vocabularies/mine"
            answer = await client.put(path, content=FILE, params={"decoder": decoder})
            assert answer.status_code == 201, answer.text
            notes = answer.json()["notes"]
            assert [("decoder=inverse" in note) for note in notes] == [True] * (decoder == "file")
            assert await texts_of(client, "mine") == {TEXTS[decoder]}

    run(scenario)


def test_a_form_may_say_the_decoder_and_a_wrong_one_is_refused():
    async def scenario():
        async with serving(ENGINE) as (client, _):
            files = {"a": ("tokenizer.json", FILE)}
            path = "/v1/vocabularies/mine"
            answer = await client.put(path, files=files, data={"decoder": "inverse"})
            assert answer.status_code == 201, answer.text
            body = {"vocabulary": "mine", "ids": IDS}
            assert (await client.post("/v1/decode", json=body)).json()["text"] == TEXTS["inverse"]
            again = await client.put(path, files=files)  # Another vocabulary: it decodes otherwise.
            assert again.status_code == 409
            wrong = await client.put(path, content=FILE, params={"decoder": "blanks"})
            assert (wrong.status_code, "decoder" in wrong.text) == (422, True)

    run(scenario)


@pytest.mark.parametrize("decoder", TEXTS)
def test_the_command_line_and_python_decode_alike(decoder: str, tmp_path, capfdbinary):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(FILE)
    command = ["decode", "-v", str(path), "--decoder", decoder, *map(str, IDS)]
    assert main(command) == 0
    assert capfdbinary.readouterr().out.decode() == TEXTS[decoder]
    tokenizer = load(path, device="cpu", decoder=decoder)
    assert tokenizer.decode(IDS) == TEXTS[decoder]
    assert tokenizer.decode_batch([IDS]) == [TEXTS[decoder]]
    wanted = read_vocabulary({"tokenizer.json": FILE}, decoder=decoder)
    assert tokenizer.digest == wanted.digest
    assert json.loads(FILE)["decoder"] is None
