"""Training jobs over HTTP: created, followed, cancelled, interrupted, resumed, refused."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.core.settings import Settings
from service.multiprocess.link.frames import Message
from service.multiprocess.request_forwarding import Forwarding, answer_forwarded
from service.security import api_keys
from service.training import worker as training_worker
from service.training.job_folder import JobFolders
from service.training.jobs import TrainingJobs
from service.training.process import ONE_THREAD
from service.training.schemas import TrainingJob, TrainingParameters
from tests.support.app_client import serving
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run
from vocabularies.formats.canonical_files import read_canonical
from vocabularies.model import canonical
from vocabularies.motifs.bank import MotifBank
from vocabularies.sequences.corpus import Corpus
from vocabularies.training.options import TrainingOptions
from vocabularies.training.train import train

ALONE = {**os.environ, **ONE_THREAD}  # As the service starts a worker.
JOBS = "/v1/training-jobs"
FAKE = (sys.executable, "-m", "tests.support.training.worker")
# The real one; of the lowest priority it would take minutes on a machine that runs many tests.
EAGER = "from service.training import worker as w; w.stand_back = lambda: None; w.main()"
REAL = (sys.executable, "-c", EAGER)
# The real one, which says so before its merge 50 and waits there until nobody needs it any more.
HALFWAY = f"""
import time
from service.training import worker as w
asked, num_asked = w.StopRequest.__call__, 0

def ask(stop):
    global num_asked
    num_asked += 1
    if num_asked == 50:
        print("halfway", flush=True)
        while not asked(stop):
            time.sleep(0.01)
    return asked(stop)

w.StopRequest.__call__ = ask
{EAGER}
"""
FASTA = b">a\nACGTACGTACGT\n>b\nACGTTTGACGTA\n>c\nGATTACAGATTACA\n"


def use(monkeypatch: pytest.MonkeyPatch, worker: tuple[str, ...]) -> None:
    made = TrainingJobs.__init__
    monkeypatch.setattr(TrainingJobs, "__init__", lambda *args: made(*args, worker))


@pytest.fixture
def worker(monkeypatch):
    """Jobs do as their names tell them, and learn nothing."""
    use(monkeypatch, FAKE)


def files(corpus: bytes = FASTA, **others: bytes) -> dict[str, tuple[str, bytes]]:
    return {name: (name, data) for name, data in {"corpus": corpus, **others}.items()}


async def create(client: httpx.AsyncClient, name: str = "mine", **fields: str) -> str:
    answer = await client.post(JOBS, files=files(), data={"vocabulary": name, **fields})
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


async def reaches(client: httpx.AsyncClient, job: str, *states: str, progress: float = 0) -> dict:
    while True:
        found = (await client.get(f"{JOBS}/{job}")).json()
        if found["state"] in states and found["progress"] >= progress:
            return found
        assert found["state"] in ("queued", "running"), found
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def open_client(**settings: object) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(FakeEngine(), **settings) as (client, _):
        yield client


MOTIFS = b"GATTA\nACGT\n"


@pytest.mark.parametrize(
    ("inputs", "fields"),
    [
        ({}, {}),
        ({"corpus.0": gzip.compress(FASTA)}, {"vocabulary_size": "9", "special_tokens": '["[X]"]'}),
        ({"corpus.0": b"ACGTACGT\nACGGACG\n"}, {"seed_region": "[2, 5]", "merge_harmful": "true"}),
        ({"motifs": MOTIFS}, {"merge_rule": "span_preserving"}),
        ({"corpus.0": FASTA.lower(), "motifs": MOTIFS}, {"upper": "1", "motif_weight": "0.5"}),
    ],
)
def test_a_worker_learns_what_training_gives(inputs, fields, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus = inputs.get("corpus.0", FASTA)
    plain = gzip.decompress(corpus) if corpus[:2] == b"\x1f\x8b" else corpus
    rows = [row for row in plain.decode().split("\n") if row and row[0] != ">"]
    rows = [row.upper() for row in rows] if "upper" in fields else rows
    options = TrainingParameters(vocabulary="x", **fields).options()
    bank = MotifBank.of(MOTIFS.decode().split()) if "motifs" in inputs else None
    expected = train(Corpus.of(rows), options, motifs=bank)
    assert last_event(tmp_path, capfd, inputs, **fields)["metrics"]["ending"] == expected.ending
    assert read_canonical(Path("vocabulary").read_bytes()) == expected.vocabulary


def test_what_is_learnt_from_several_files_can_be_used(monkeypatch):
    use(monkeypatch, REAL)

    async def scenario():
        async with open_client() as client:
            parts = [("corpus", (name, data)) for name, data in (("b", b"ACGT\n"), ("a", FASTA))]
            fields = {"parameters": json.dumps({"vocabulary": "mine", "min_frequency": 1})}
            answer = await client.post(JOBS, files=parts, data=fields)
            assert answer.headers["location"] == f"{JOBS}/{answer.json()['id']}"
            assert answer.json()["corpus_bytes"] == len(b"ACGT\n" + FASTA)
            job = await reaches(client, answer.json()["id"], "finished")
            rows = ["ACGT", "ACGTACGTACGT", "ACGTTTGACGTA", "GATTACAGATTACA"]
            expected = train(Corpus.of(rows), TrainingOptions(min_frequency=1)).vocabulary
            assert job["digest"] == expected.digest
            assert job["metrics"]["num_sequences"] == 4
            assert (job["progress"], job["metrics"]["vocabulary_size"]) == (1, len(expected))
            found = (await client.get("/v1/vocabularies/mine")).json()
            assert (found["state"], found["digest"]) == ("loaded", expected.digest)
            assert (await client.get(JOBS)).json() == {"jobs": [job]}

    run(scenario)


def record(folder: Path, inputs: dict[str, bytes], **fields: object) -> None:
    """A job's folder."""
    for name, data in {"corpus.0": FASTA, **inputs}.items():
        (folder / name).write_bytes(data)
    parameters = TrainingParameters(vocabulary="x", **fields)
    job = TrainingJob(
        id="1",
        vocabulary="x",
        parameters=parameters,
        corpus_bytes=0,
        created_at=datetime.now(UTC),
    )
    (folder / "job.json").write_text(job.model_dump_json())


def last_event(folder: Path, capfd, inputs: dict[str, bytes], **fields: object) -> dict:
    """Run a job with these inputs in this process; return the last event of its worker."""
    record(folder, inputs, **fields)
    training_worker.run(lambda: False, 4000)
    return json.loads(capfd.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize(
    ("inputs", "fields", "code", "words"),
    [
        ({"corpus.0": "ACGTÄ".encode()}, {}, "vocabulary_invalid", "sequence 1, letter 5"),
        ({"corpus.0": b""}, {}, "vocabulary_invalid", "no letter"),
        ({"confidence": b">a\n1 1 1 1\n"}, {}, "vocabulary_invalid", "confidence: line"),
        ({"motifs": b"AC\nA!\n"}, {}, "vocabulary_invalid", "motifs: line 2"),
        ({"state.npz": b"no state"}, {}, "vocabulary_invalid", "state"),
        ({"corpus.0": gzip.compress(FASTA)[:-9]}, {}, "bad_body", "corpus.0"),
        ({"corpus.0": b"@a\nACGT\nno plus\n"}, {}, "bad_body", "corpus.0"),
        ({"corpus.0": gzip.compress(b"A" * 5000)}, {}, "vocabulary_invalid", "more than 4000"),
    ],
)
def test_wrong_inputs_fail_with_their_places(
    inputs, fields, code, words, tmp_path, capfd, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    error = last_event(tmp_path, capfd, inputs, **fields)["error"]
    assert error["code"] == code
    assert words in f"{error['where'] if 'where' in error else ''}: {error['detail']}"
    assert str(tmp_path) not in json.dumps(error)


def test_a_worker_that_has_nothing_to_save_ends_at_once(tmp_path):
    record(tmp_path, {"corpus.0": b""})
    (tmp_path / "corpus.0").unlink()
    os.mkfifo(tmp_path / "corpus.0")  # Reading it lasts for ever.
    command = [*REAL, str(tmp_path), f"--memory-bytes={1 << 32}", "--corpus-bytes=1000000"]
    with subprocess.Popen(command, env=ALONE, stdin=subprocess.PIPE) as process:
        process.stdin.close()
        assert process.wait(180) == 0


def test_a_worker_stands_back_for_everything_else():
    program = (
        "import os; from service.training.worker import stand_back; stand_back(); "
        "print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_IDLE)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["19", "True"], done.stderr


def test_a_worker_whose_service_is_gone_saves_its_state_and_another_goes_on(tmp_path, monkeypatch):
    rows = ["".join(random.Random(i).choices("ACGT", k=100)) for i in range(60)]
    inputs = {"corpus.0": "\n".join(rows).encode()}
    fields = {"vocabulary_size": 200}
    record(tmp_path, inputs, **fields)
    bounds = [f"--memory-bytes={1 << 32}", "--corpus-bytes=1000000"]
    command = [sys.executable, "-c", HALFWAY, str(tmp_path), *bounds]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=ALONE, **pipes) as process:
        assert b"halfway\n" in process.stdout
        process.stdin.close()
        assert b"ending" not in process.stdout.read()
        assert process.wait(180) == 0
    assert len(np.load(tmp_path / "state.npz")["merges"]) == 49
    monkeypatch.chdir(tmp_path)
    training_worker.run(lambda: False, 1_000_000)
    expected = train(Corpus.of(rows), TrainingOptions(vocabulary_size=200)).vocabulary
    assert read_canonical(Path("vocabulary").read_bytes()) == expected


@pytest.mark.parametrize("failure", [MemoryError(), OSError(28, "full", "state"), KeyError("ACGT")])
def test_a_failed_worker_reports_its_error_without_the_input(failure, tmp_path, capfd, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vocabularies.training.train.train", fail)
    error = last_event(tmp_path, capfd, {})["error"]
    codes = {MemoryError: "out_of_memory", OSError: "os_error", KeyError: "internal"}
    assert error["code"] == codes[type(failure)]
    assert "ACGT" not in error["detail"]


REFUSED = [
    (files(), {}, 422, "/vocabulary"),
    (files(), {"vocabulary": "a b"}, 422, "/vocabulary"),
    (files(), {"vocabulary": "gpt2"}, 403, "/vocabulary"),
    (files(), {"vocabulary": "x", "vocabulary_size": "0"}, 422, "/vocabulary_size"),
    (files(), {"vocabulary": "x", "vocabulary_size": "many"}, 422, "/vocabulary_size"),
    (files(), {"vocabulary": "x", "seed_region": "[2"}, 422, "/seed_region"),
    (files(), {"vocabulary": "x", "seed_region": "[5, 2]"}, 422, "/seed_region"),
    (files(), {"vocabulary": "x", "lambda": "1"}, 422, "/lambda"),
    (files(), {"vocabulary": "x", "merge_rule": "span_preserving"}, 422, "/motifs"),
    (files(), {"vocabulary": "x", "parameters": "{"}, 422, "/parameters"),
    (files(), {"vocabulary": "x", "parameters": "[]"}, 422, "/parameters"),
    (files(), {"vocabulary": "x", "parameters": '{"vocabulary": "y"}'}, 422, "/vocabulary"),
    (files(), {"vocabulary": "x", "parameters": "[" * 60_000}, 422, "/parameters"),
    (files(), {"vocabulary": "x", "seed_region": "[" * 60_000}, 422, "/seed_region"),
    (
        files(),
        {"vocabulary": "x", "parameters": '{"spell": "T", "spell": "U"}'},
        422,
        "/parameters",
    ),
    ({"motifs": ("m", b"AC")}, {"vocabulary": "x"}, 422, "/corpus"),
    (files(b"A" * 4001), {"vocabulary": "x"}, 413, "/corpus"),
    (files(motifs=b"A" * 3001), {"vocabulary": "x"}, 413, "/motifs"),
    (files(), {"vocabulary": "x" * 70_000}, 413, "/vocabulary"),
    ([("motifs", b"AC"), ("motifs", b"AC")], {"vocabulary": "x"}, 422, "/motifs"),
]


def test_what_is_wrong_at_once_is_refused_with_its_place_and_leaves_nothing(tmp_path):
    async def scenario():
        limits = {"max_corpus_bytes": 4000, "max_vocabulary_bytes": 3000}
        async with open_client(store_dir=tmp_path, **limits) as client:
            for parts, data, status, where in REFUSED:
                answer = await client.post(JOBS, files=parts, data=data)
                assert (answer.status_code, answer.json()["where"]) == (status, where), answer.text
            assert (await client.get(JOBS)).json() == {"jobs": []}
            assert list((tmp_path / "training").iterdir()) == []

    run(scenario)


def test_bodies_that_are_no_forms_are_refused():
    form = {"content-type": "multipart/form-data; boundary=b"}
    part = b'--b\r\ncontent-disposition: form-data; name="corpus"\r\n\r\nACGT'
    bodies = [
        ({"content-type": "application/json"}, b"{}", 415),
        ({"content-type": "multipart/form-data"}, b"", 400),
        (form, b"no form at all", 400),
        (form, part, 400),
        (form, part + b"\r\n--b--\r\n", 422),
        (form, b"--b\r\n\r\nACGT\r\n--b--\r\n", 422),
        (
            form,
            b"".join(
                b'--b\r\ncontent-disposition: form-data; name="a%d"\r\n\r\n\r\n' % i
                for i in range(70)
            ),
            413,
        ),
        (form | {"content-encoding": "gzip"}, b"no gzip", 400),
        (form | {"content-length": str(10**15)}, b"", 413),
    ]

    async def scenario():
        async with open_client() as client:
            for headers, body, status in bodies:
                answer = await client.post(JOBS, content=body, headers=headers)
                assert answer.status_code == status, (headers, body, answer.text)

    run(scenario)


def test_the_log_and_the_job_say_what_it_computed_on_and_whether_the_gpu_can_learn(worker, caplog):
    caplog.set_level("INFO", "service.training.jobs")
    said = []

    async def scenario():
        async with open_client() as client:
            for name in ("mine", "faulty"):
                job = await reaches(client, await create(client, name), "finished")
                said.append([job["metrics"][key] for key in ("device", "device_selftest")])

    run(scenario)
    assert said == [["cuda", "passed"], ["cpu", "failed"]]
    own = [line for line in caplog.records if line.name == "service.training.jobs"]
    lines = [(line.levelname, line.getMessage(), line.fields) for line in own]
    lines = [(level, words.split(maxsplit=3)[3], fields) for level, words, fields in lines]
    assert lines == [
        ("INFO", "computes on cuda", {"selftest": "passed"}),
        ("ERROR", "does not use the GPU: is broken", {"selftest": "failed"}),
        ("INFO", "computes on cpu", {"selftest": "failed"}),
    ]


def test_a_name_in_use_or_of_another_job_is_refused(worker):
    async def scenario():
        async with open_client() as client:
            await reaches(client, await create(client, "mine"), "finished")
            slow = await create(client, "slow")
            for name in ("mine", "slow"):
                answer = await client.post(JOBS, files=files(), data={"vocabulary": name})
                assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")
            await create(client, "mine", replace="true")
            assert (await client.delete(f"{JOBS}/{slow}")).status_code == 204

    run(scenario)


def test_the_queue_is_bounded_and_jobs_run_in_order_one_at_a_time(worker):
    async def scenario():
        async with open_client(max_training_jobs=3) as client:
            made = [await create(client, name) for name in ("slow", "second", "third")]
            await reaches(client, made[0], "running", progress=0.5)
            answer = await client.post(JOBS, files=files(), data={"vocabulary": "fourth"})
            assert (answer.status_code, answer.json()["code"]) == (429, "too_many_jobs")
            assert int(answer.headers["retry-after"]) >= 1
            assert gauges((await client.get("/metrics")).text) == {"queued": 2, "running": 1}
            assert (await client.delete(f"{JOBS}/{made[1]}")).status_code == 204
            assert (await client.delete(f"{JOBS}/{made[0]}")).status_code == 204
            assert (await client.get(f"{JOBS}/{made[0]}")).json()["state"] == "cancelled"
            await reaches(client, made[2], "finished")
            assert (await client.get("/v1/vocabularies/second")).status_code == 404
            assert (await client.delete(f"{JOBS}/{made[0]}")).status_code == 204
            answer = await client.get(f"{JOBS}/{made[0]}")
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown_job")
            assert gauges((await client.get("/metrics")).text) == {}

    run(scenario)


def test_a_folder_that_cannot_be_made_takes_no_jobs_place(worker, tmp_path):
    async def scenario():
        async with open_client(max_training_jobs=1, store_dir=tmp_path) as client:
            (tmp_path / "training").write_bytes(b"no folder")
            for _ in range(3):
                answer = await client.post(JOBS, files=files(), data={"vocabulary": "mine"})
                assert (answer.status_code, answer.json()["code"]) == (500, "store_failed")
            (tmp_path / "training").unlink()
            await create(client)

    run(scenario)


def gauges(text: str) -> dict[str, float]:
    return {
        sample.labels["state"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "warptok_training_jobs" and sample.value
    }


def test_a_job_outlives_the_service_and_goes_on(worker, tmp_path):
    async def scenario():
        async with open_client(store_dir=tmp_path) as client:
            slow = await create(client, "slow")
            waiting = await create(client, "waiting")
            await reaches(client, slow, "running", progress=0.5)
        async with open_client(store_dir=tmp_path) as client:
            await reaches(client, waiting, "finished")
            job = (await client.get(f"{JOBS}/{slow}")).json()
            assert (job["state"], job["error"]["code"]) == ("interrupted", "service_ended")
            assert job["metrics"]["num_merges"] == 5
            assert (await client.post(f"{JOBS}/{waiting}/resume")).status_code == 409
            assert (await client.post(f"{JOBS}/{slow}/resume")).status_code == 202
            assert (await reaches(client, slow, "finished"))["error"] is None
        assert [path.name for path in (tmp_path / "training" / slow).iterdir()] == ["job.json"]
        async with open_client(store_dir=tmp_path) as client:
            assert (await client.get(f"{JOBS}/{slow}")).json()["state"] == "finished"

    run(scenario)


def test_a_job_that_hears_nothing_is_ended_with_the_service(worker, tmp_path):
    async def scenario():
        async with open_client(store_dir=tmp_path, drain_timeout_s=0.2) as client:
            deaf = await create(client, "deaf")
            await reaches(client, deaf, "running", progress=0.5)
        record = json.loads((tmp_path / "training" / deaf / "job.json").read_bytes())
        assert record["state"] == "interrupted"

    run(scenario)


def test_a_process_that_ends_is_reported_and_the_next_job_runs(worker):
    async def scenario():
        async with open_client() as client:
            made = [await create(client, name) for name in ("dies", "quits", "wrong", "good")]
            states = [
                await reaches(client, job, "interrupted", "failed", "finished") for job in made
            ]
            assert [job["state"] for job in states] == [
                "interrupted",
                "interrupted",
                "failed",
                "finished",
            ]
            assert "signal 9" in states[0]["error"]["detail"]
            assert "too early" in states[1]["error"]["detail"]

    run(scenario)


def test_a_learnt_vocabulary_is_kept_if_its_name_is_in_use_by_then(worker, monkeypatch):
    async def scenario():
        async with open_client() as client:
            slow = await create(client, "slow")
            mine = await create(client, "mine")
            vocabulary = canonical.to_bytes(
                train(Corpus.of(["ACGT"]), TrainingOptions()).vocabulary
            )
            answer = await client.put("/v1/vocabularies/mine", content=vocabulary)
            assert answer.status_code == 201, answer.text
            await client.delete(f"{JOBS}/{slow}")
            job = await reaches(client, mine, "interrupted")
            assert job["error"]["code"] == "name_taken"
            assert (await client.post(f"{JOBS}/{mine}/resume")).status_code == 409
            answer = await client.post(f"{JOBS}/{mine}/resume?vocabulary=yours")
            assert answer.json()["vocabulary"] == "yours"
            assert (await reaches(client, mine, "finished"))["digest"]
            assert (await client.get("/v1/vocabularies/yours")).status_code == 200
            # Its vocabulary has the name by now; the refusal is about the job all the same.
            for query in ("", "?replace=true", "?vocabulary=third"):
                answer = await client.post(f"{JOBS}/{mine}/resume{query}")
                assert (answer.status_code, answer.json()["code"]) == (409, "wrong_state")

    run(scenario)


def test_an_upload_to_a_front_end_goes_through_a_file(worker, tmp_path):
    content = httpx.Request("POST", "http://x", files=files(), data={"vocabulary": "mine"})
    body, seen = content.read(), []

    async def scenario():
        settings = Settings(store_dir=tmp_path, max_corpus_bytes=4000, max_vocabulary_bytes=3000)
        async with serving(FakeEngine(), store_dir=tmp_path) as (client, _):

            class Engine:
                async def call(self, message: Message) -> Message:
                    (path,) = (tmp_path / "training").glob(".upload-*")
                    seen.append(path.stat().st_size)
                    assert list(JobFolders(tmp_path).recover()) == []
                    assert path.exists(), "its front end holds it"
                    answer = await answer_forwarded(service_app(client), message)
                    busy = await front.post(JOBS, content=body, headers=content.headers)
                    assert busy.json()["code"] == "too_many_jobs"
                    return answer

            forwarding = Forwarding(service_app(client), Engine(), settings)
            transport = httpx.ASGITransport(forwarding)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as front:
                answer = await front.post(JOBS, content=body, headers=content.headers)
                assert answer.status_code == 202, answer.text
                await reaches(client, answer.json()["id"], "finished")
                answer = await front.post(JOBS, content=b"x" * 2_000_000, headers=content.headers)
                assert answer.status_code == 413
            assert seen == [len(body)]
            assert list((tmp_path / "training").glob(".upload-*")) == []
            (tmp_path / "training" / ".upload-left").touch()
            assert list(JobFolders(tmp_path).recover()) == []
            assert list((tmp_path / "training").glob(".upload-*")) == []

    run(scenario)


def test_jobs_and_uploads_of_another_user_are_skipped(tmp_path, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(path)

    folders = JobFolders(tmp_path)
    folders.new().close()
    (tmp_path / "training" / ".upload-left").touch()
    with monkeypatch.context() as patches:
        patches.setattr("service.training.job_folder.os.open", refuse)
        assert list(folders.recover()) == []
    assert len(list((tmp_path / "training").iterdir())) == 2


def service_app(client: httpx.AsyncClient):
    """The app of FastAPI alone, without the check of keys."""
    return client._transport.app.fastapi


def test_training_needs_its_scope_and_replacing_another_one(worker, tmp_path):
    path = tmp_path / "keys.json"
    keys = {scope: api_keys.add_key(path, scope, (scope,)) for scope in ("train", "manage")}
    keys["both"] = api_keys.add_key(path, "both", ("train", "manage"))

    async def scenario():
        async with open_client(api_keys_file=path) as client:

            async def post(key: str, **fields: str) -> int:
                headers = {"x-api-key": keys[key]}
                data = {"vocabulary": "mine", **fields}
                return (
                    await client.post(JOBS, files=files(), data=data, headers=headers)
                ).status_code

            assert await post("manage") == 403
            assert await post("train", replace="true") == 403
            assert await post("both", replace="true") == 202
            assert await post("train", vocabulary="other") == 202
        async with open_client(host="0.0.0.0") as client:
            answer = await client.post(JOBS, files=files(), data={"vocabulary": "mine"})
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")

    run(scenario)


def test_parameters_are_the_options_of_training_with_their_defaults():
    assert TrainingParameters(vocabulary="x").options() == TrainingOptions()
