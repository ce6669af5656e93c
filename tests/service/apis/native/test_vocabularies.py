"""Vocabulary management over HTTP, with files as they come from users."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from service.engines.cpu.engine import CpuEngine
from tests.support import waiting
from tests.support.app_client import serving
from tests.support.fake_engine import FakeEngine
from tests.support.inputs.motif_strategies import motif_vocabulary
from vocabularies import builtin, formats
from vocabularies.reference import tokenizer

TOKENIZER_JSON = json.dumps(
    {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "vocab": {"A": 0, "C": 1, "G": 2, "T": 3, "AC": 4, "GT": 5, "ACGT": 6},
            "merges": [["A", "C"], ["G", "T"], ["AC", "GT"]],
        },
    }
).encode()
OTHER_JSON = TOKENIZER_JSON.replace(b'[["A", "C"], ["G", "T"]', b'[["G", "T"], ["A", "C"]')
FILES = (TOKENIZER_JSON, OTHER_JSON)


def run(scenario, engine=None, **settings) -> None:
    async def within() -> None:
        async with serving(engine or FakeEngine(), **settings) as (client, service):
            await scenario(client, service)

    waiting.run(within)


def test_an_upload_can_be_listed_used_downloaded_and_deleted():
    async def scenario(client, _):
        response = await client.put("/v1/vocabularies/dna", content=TOKENIZER_JSON)
        assert response.status_code == 201, response.text
        report = response.json()
        assert (report["name"], report["kind"], report["size"]) == ("dna", "bpe", 7)
        assert report["state"] == "loaded"
        assert report["self_test"]["num_different"] == 0
        names = {v["name"] for v in (await client.get("/v1/vocabularies")).json()["vocabularies"]}
        assert names == {"dna", *builtin.BUILTINS}
        body = {"vocabulary": "dna", "text": "ACGT", "if_digest": report["digest"]}
        assert (await client.post("/v1/encode", json=body)).status_code == 200
        got = await client.get("/v1/vocabularies/dna?format=tokenizer.json")
        assert "tokenizer.json" in got.headers["content-disposition"]
        again = formats.read_vocabulary({"tokenizer.json": got.content})
        assert again.digest == report["digest"]
        assert (await client.delete("/v1/vocabularies/dna")).status_code == 204
        assert (await client.post("/v1/encode", json=body)).status_code == 404
        assert (await client.get("/v1/vocabularies/dna")).status_code == 404

    run(scenario)


def test_a_vocabulary_with_motifs_is_served_and_its_faults_are_named():
    vocabulary = motif_vocabulary("ACGT", [("T", "T")], ["ACG", "GT"])
    content = formats.write_vocabulary(vocabulary, "canonical")["vocabulary.canonical"]

    async def scenario(client, _):
        report = (await client.put("/v1/vocabularies/seeds", content=content)).json()
        assert report["digest"] == vocabulary.digest
        assert report["self_test"]["num_different"] == 0
        got = await client.get("/v1/vocabularies/seeds?format=tokenizer.json")
        again = await client.put("/v1/vocabularies/again", content=got.content)
        assert again.status_code == 201, again.text
        texts = ["TACGTT", "<mask>GTACGGT", "n"]
        for name in ("seeds", "again"):
            body = {"vocabulary": name, "texts": texts, "special": "match"}
            rows = (await client.post("/v1/encode/batch", json=body)).json()["ids"]
            assert rows == [tokenizer.encode(vocabulary, text).ids for text in texts]
        wrong = content.replace(b'"motifs":["ACG","GT"]', b'"motifs":["CCC","GG"]')
        response = await client.put("/v1/vocabularies/wrong", content=wrong)
        assert response.status_code == 422
        assert [finding["where"] for finding in response.json()["findings"]] == [
            "motifs[0]",
            "motifs[1]",
        ]

    run(scenario, CpuEngine())


def test_the_same_file_again_is_200_another_one_409_and_replace_swaps():
    async def scenario(client, _):
        path = "/v1/vocabularies/dna"
        first = (await client.put(path, content=TOKENIZER_JSON)).json()["digest"]
        assert (await client.put(path, content=TOKENIZER_JSON)).status_code == 200
        taken = await client.put(path, content=OTHER_JSON)
        assert (taken.status_code, taken.json()["code"]) == (409, "name_taken")
        assert first in taken.json()["detail"]
        swapped = await client.put(path + "?replace=true", content=OTHER_JSON)
        assert swapped.status_code == 201
        assert swapped.json()["digest"] != first

    run(scenario)


def test_several_files_come_as_multipart_and_go_as_a_zip():
    async def scenario(client, _):
        written = formats.write_vocabulary(builtin.load("gpt2"), "vocab.json")
        files = [("files", (name, content)) for name, content in written.items()]
        response = await client.put("/v1/vocabularies/mine", files=files)
        assert response.status_code == 201, response.text
        assert response.json()["digest"] == builtin.load("gpt2").digest
        request = client.build_request("PUT", "/v1/vocabularies/mine", files=files)
        form = request.headers["content-type"].replace("multipart/form-data", "Multipart/Form-Data")
        request.headers["content-type"] = form
        assert (await client.send(request)).status_code == 200
        got = await client.get("/v1/vocabularies/gpt2?format=vocab.json")
        archive = zipfile.ZipFile(io.BytesIO(got.content))
        assert {name: archive.read(name) for name in archive.namelist()} == written

    run(scenario)


def test_a_sentencepiece_model_is_uploaded_alone_or_with_its_configuration():
    tests = Path(__file__).parents[3]
    folder = tests / "vocabularies" / "formats" / "sentencepiece" / "models"
    model = (folder / "bpe_llama.model").read_bytes()
    config = json.dumps({"tokenizer_class": "LlamaTokenizer", "chat_template": "{{ 1 }}"}).encode()

    async def scenario(client, _):
        for query in ("", "?format=sentencepiece"):
            answer = await client.put(f"/v1/vocabularies/alone{query}", content=model)
            assert answer.is_success, answer.text
        files = [("files", ("tokenizer.model", model))]
        files.append(("files", ("tokenizer_config.json", config)))
        answer = await client.put("/v1/vocabularies/llama", files=files)
        assert answer.status_code == 201, answer.text
        found = {}
        for name in ("alone", "llama"):
            body = {"text": "the <s>", "vocabulary": name}
            found[name] = (await client.post("/v1/encode", json=body)).json()["ids"]
        assert found["llama"][0] == 1 and 1 not in found["alone"]
        refused = await client.put("/v1/vocabularies/no", content=model[:-9] + b"\x0b")
        assert refused.status_code == 422 and "byte" in refused.text

    run(scenario, CpuEngine())


@pytest.mark.slow
def test_fields_of_a_form_are_options():
    (ranks,) = formats.write_vocabulary(builtin.load("gpt2"), "tiktoken").values()
    special = {"special_tokens": '{"<|endoftext|>": 50256}'}

    async def scenario(client, _):
        path, files = "/v1/vocabularies/mine", {"file": ("mine.tiktoken", ranks)}
        for query, form in (
            ({}, {"pretokenizer": "gpt2", **special}),
            ({"pretokenizer": "gpt2"}, special),
            ({"pretokenizer": "gpt2", **special}, {"format": "tiktoken", "id_offset": "0"}),
        ):
            answer = await client.put(path, params=query, data=form, files=files)
            assert answer.status_code in (200, 201), answer.text
            assert answer.json()["digest"] == builtin.load("gpt2").digest
        other = {"pretokenizer": "cl100k", **special}
        answer = await client.put(path, data=other, files=files)
        assert answer.status_code == 409
        answer = await client.put(path, data=other | {"replace": "true"}, files=files)
        assert answer.status_code == 201
        assert answer.json()["digest"] != builtin.load("gpt2").digest

    run(scenario, CpuEngine())


@pytest.mark.parametrize(
    ("query", "form", "where"),
    [
        ({}, {"pretokeniser": "gpt2"}, "/pretokeniser"),
        ({}, {"merges.txt": "a b"}, "/merges.txt"),
        ({"format": "auto"}, {"format": "auto"}, "/format"),
        ({}, {"format": ["auto", "auto"]}, "/format"),
        ({}, {"replace": "perhaps"}, "/replace"),
        ({}, {"id_offset": "-1"}, "/id_offset"),
        ({}, {"special_tokens": "[1]"}, "special_tokens"),
        ({}, {"special_tokens": '{"<a>": 1, "<a>": 2}'}, "special_tokens"),
        ({}, {"special_tokens": '{"<a>": true}'}, "special_tokens"),
    ],
)
def test_a_field_that_is_no_option_is_refused(query, form, where):
    async def scenario(client, service):
        files = {"file": ("tokenizer.json", TOKENIZER_JSON)}
        answer = await client.put("/v1/vocabularies/x", params=query, data=form, files=files)
        assert (answer.status_code, answer.json()["where"]) == (422, where)
        assert "x" not in service.registry.known

    run(scenario)


def test_what_a_file_says_of_truncation_and_padding_is_told(tmp_path):
    document = json.loads(TOKENIZER_JSON)
    document["truncation"] = {"max_length": 2, "strategy": "LongestFirst", "stride": 0}
    document["padding"] = {"strategy": {"Fixed": 8}, "pad_token": "x" * 300}
    content = json.dumps(document).encode()
    path = "/v1/vocabularies/cut"

    def check(notes):
        truncation, padding = notes
        assert truncation == (
            "truncation of the file is not followed, requests have max_length and truncation_side: "
            '{"max_length": 2, "strategy": "LongestFirst", "stride": 0}'
        )
        assert padding.startswith("padding of the file is not followed, requests have padding, ")
        assert padding.endswith("xxx...")

    async def put(client, _):
        answer = await client.put(path, content=TOKENIZER_JSON)
        assert answer.json()["notes"] == []
        answer = await client.put(path, content=content)
        assert answer.status_code == 200  # The ids are the same.
        check(answer.json()["notes"])
        await client.put("/v1/vocabularies/deleted", content=content)
        await client.delete("/v1/vocabularies/deleted")
        text = {"vocabulary": "cut", "text": "AAAA"}
        assert (await client.post("/v1/encode", json=text)).json()["num_tokens"] == 4

    async def look(client, _):
        check((await client.get(path)).json()["notes"])
        listed = (await client.get("/v1/vocabularies")).json()["vocabularies"]
        assert [each["name"] for each in listed if each["notes"]] == ["cut"]
        await client.put(path, content=TOKENIZER_JSON)
        assert (await client.get(path)).json()["notes"] == []

    run(put, CpuEngine(), store_dir=tmp_path)
    run(look, CpuEngine(), store_dir=tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["cut.vocabulary"]


def test_two_files_of_one_name_are_refused():
    async def scenario(client, _):
        files = [("a", ("tokenizer.json", TOKENIZER_JSON)), ("b", ("tokenizer.json", OTHER_JSON))]
        answer = await client.put("/v1/vocabularies/x", files=files)
        assert (answer.status_code, answer.json()["where"]) == (422, "/b")

    run(scenario)


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 422, "vocabulary_invalid"),
        (TOKENIZER_JSON[:-30], 422, "vocabulary_invalid"),
        (b"\x80\x04\x95pickle", 422, "vocabulary_invalid"),
        (b"PK\x03\x04zip", 422, "vocabulary_invalid"),
        (b"\x1f\x8b\x08gz", 422, "vocabulary_invalid"),
        (TOKENIZER_JSON.replace(b'"ACGT"', b'"ACGA"'), 422, "vocabulary_invalid"),
        (b"x" * 5000, 413, "too_large"),
        (b"[" * 4000, 422, "vocabulary_invalid"),
    ],
)
def test_a_broken_upload_is_refused_with_its_place(content, status, code):
    async def scenario(client, service):
        response = await client.put("/v1/vocabularies/broken", content=content)
        assert (response.status_code, response.json()["code"]) == (status, code), response.text
        assert "broken" not in service.registry.known

    run(scenario, max_vocabulary_bytes=4096)


def test_wrong_names_and_unknown_formats_are_refused():
    async def scenario(client, _):
        for method, path, status in [
            ("PUT", "/v1/vocabularies/..%2Fx", 422),
            ("PUT", "/v1/vocabularies/.x", 422),
            ("PUT", "/v1/vocabularies/gpt2", 403),
            ("DELETE", "/v1/vocabularies/gpt2", 403),
            ("DELETE", "/v1/vocabularies/none", 404),
            ("GET", "/v1/vocabularies/gpt2?format=pickle", 415),
            ("GET", "/v1/vocabularies/gpt2?format=kmer", 422),
            ("PUT", "/v1/vocabularies/x?special_tokens=[1]", 422),
            ("POST", "/v1/vocabularies/none/load", 404),
            ("POST", "/v1/vocabularies/none/unload", 404),
            ("POST", "/v1/vocabularies/none/verify", 404),
        ]:
            content = TOKENIZER_JSON if method == "PUT" else None
            response = await client.request(method, path, content=content)
            assert response.status_code == status, (path, response.text)
            assert "detail" in response.json()

    run(scenario)


def test_verify_finds_what_differs_and_shows_the_first():
    async def scenario(client, _):
        path = "/v1/vocabularies/evo_bytes/verify"
        equal = (await client.post(path, json={"texts": ["ACGT", "é"]})).json()
        assert (equal["num_texts"], equal["num_different"]) == (2, 0)
        assert equal["num_ids"] == equal["num_equal_ids"] == 6
        assert equal["first_difference"] is None
        assert (await client.post(path)).json()["num_texts"] == 200
        path = "/v1/vocabularies/hyenadna/verify"
        different = (await client.post(path, json={"texts": ["AC"]})).json()
        assert different["num_different"] == 1
        assert different["first_difference"] == {
            "text": "AC",
            "engine": [65, 67],
            "reference": [7, 8, 1],
        }
        many = await client.post(path, json={"samples": 201})
        assert (many.status_code, many.json()["code"]) == (413, "too_large")

    run(scenario, max_samples=200)


def test_load_and_unload_change_the_state():
    async def scenario(client, service):
        path = "/v1/vocabularies/hyenadna"
        assert (await client.get(path)).json()["state"] == "unloaded"
        assert (await client.post(path + "/load")).json()["state"] == "loaded"
        assert (await client.post(path + "/unload")).json()["state"] == "unloaded"
        assert (await client.get(path)).json()["state"] == "unloaded"

    run(scenario)


@pytest.mark.parametrize("other", ["put", "delete"])
def test_an_uploads_answer_has_its_own_digest_even_if_the_name_changes(other):
    """Another client replaces or deletes the name before the answer is written."""
    own, foreign = (formats.read_vocabulary({"a": content}) for content in FILES)

    async def scenario(client, service):
        async def meanwhile():
            if other == "put":
                service.registry.put("mine", foreign, replace=True)
            else:
                service.registry.delete("mine")

        service.get_engine_parts().vocabularies.after_change = meanwhile
        answer = await client.put("/v1/vocabularies/mine", content=TOKENIZER_JSON)
        assert (answer.status_code, answer.json()["digest"]) == (201, own.digest)
        assert (answer.json()["state"], answer.json()["source"]) == ("loaded", "uploaded")
        known = [entry.vocabulary.digest for entry in service.registry.entries.values()]
        assert (foreign.digest in known) == (other == "put")
        assert own.digest not in known

    run(scenario)
