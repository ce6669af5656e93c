"""Builds the images on a machine that reaches no registry of images, and operates them.

    apt-get install docker.io debootstrap
    python deploy/image/try_images.py               # as root; cpu and render
    python deploy/image/try_images.py --targets gpu --only-build

The base is made by debootstrap, with Debian's Python, in place of that which the Dockerfile names.
A Docker daemon of its own runs from a folder of its own, with the driver vfs and no bridge, so that
it also works inside a virtual machine or a container. Everything is removed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUITE, PACKAGES = "trixie", "ca-certificates,python3,python3-dev,python3-venv"
MIRROR = "http://deb.debian.org/debian"
BASE = "warptok-base"
PORT = 18000
USER = "10001"
WAIT_S = 120
CLIENTS = 8
LOCKED_DOWN = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--network", "host"]
LOCKED_DOWN += ["--security-opt", "no-new-privileges", "--env", f"WARPTOK_PORT={PORT}"]
LOCKED_DOWN += ["--env", f"WARPTOK_GRPC_PORT={PORT + 1}"]
CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


class Docker:
    """A Docker daemon of its own.

    Args:
        folder: where it keeps everything.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = f"unix://{folder}/docker.sock"
        command = ["dockerd", "--host", self.address, "--storage-driver", "vfs"]
        command += ["--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")]
        command += ["--pidfile", str(folder / "pid"), "--bridge", "none", "--iptables=false"]
        self._log = (folder / "dockerd.log").open("w")
        self._daemon = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        wait_for("the daemon answers", lambda: self.try_run("version") == 0)

    def run(self, *arguments: str, **options: Any) -> str:
        """Run a command of docker, and return what it prints."""
        done = subprocess.run(
            ["docker", "--host", self.address, *arguments],
            text=True,
            capture_output=True,
            **options,
        )
        if done.returncode:
            raise SystemExit(f"docker {arguments[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout.strip()

    def try_run(self, *arguments: str) -> int:
        """Run a command of docker without output, and return its exit code."""
        command = ["docker", "--host", self.address, *arguments]
        return subprocess.run(command, capture_output=True).returncode

    def build(self, target: str, build_arguments: list[str]) -> None:
        """Build one target of the Dockerfile."""
        command = ["docker", "--host", self.address, "build", "--network", "host"]
        command += ["--build-arg", f"PYTHON_IMAGE={BASE}", "--target", target, "--tag", target]
        for argument in build_arguments:
            command += ["--build-arg", argument]
        environment = {"DOCKER_BUILDKIT": "1", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        subprocess.run([*command, str(ROOT)], env=environment, check=True)

    def stop(self) -> None:
        """End the daemon."""
        self._daemon.terminate()
        self._daemon.wait()
        self._log.close()
        # The network `host` is a mount that outlives the daemon.
        subprocess.run(["umount", str(self._folder / "exec/netns/default")], capture_output=True)


def wait_for(what: str, is_true: Any) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + WAIT_S
    while not is_true():
        if time.monotonic() > end:
            raise SystemExit(f"FAILED: not within {WAIT_S} s: {what}")
        time.sleep(0.2)


def check(what: str, is_true: bool, found: object = "") -> None:
    """Print what was checked; end if it is not so."""
    print(f"  {'ok' if is_true else 'FAILED'}: {what}  {found}", flush=True)
    if not is_true:
        raise SystemExit(1)


def make_base(docker: Docker, folder: Path) -> None:
    """Make the base image, with the certificates and the pip settings of this machine."""
    root = folder / "base"
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--include={PACKAGES}",
        SUITE,
        str(root),
        MIRROR,
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for name in ("etc/ssl/certs/ca-certificates.crt", "etc/pip.conf"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(Path("/", name), root / name)
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
        docker.run("import", "-", BASE, stdin=tar.stdout)
    shutil.rmtree(root)


def request(method: str, path: str, body: object = None, key: str = "") -> tuple[int, Any]:
    """Send one request on a connection of its own; return the status and the JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    try:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {key}"} if key else {}
        headers |= {"content-type": "application/json"} if data and data[:1] == b"{" else {}
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content[:1] in (b"{", b"[") else content
    finally:
        connection.close()


def is_ready() -> bool:
    """Return whether the service is ready."""
    try:
        return request("GET", "/readyz")[0] == 200
    except OSError:
        return False


@contextlib.contextmanager
def container(docker: Docker, image: str, *options: str, command: list[str] = []) -> Iterator[str]:  # noqa: B006
    """Run a container until the end of the block."""
    name = docker.run("run", "--detach", *LOCKED_DOWN, *options, image, *command)
    try:
        wait_for("ready", is_ready)
        yield name
    except BaseException:
        print(docker.run("logs", name))
        raise
    finally:
        docker.try_run("rm", "--force", name)


def inspect(docker: Docker, name: str, field: str) -> str:
    """Return one field of a container or an image."""
    return docker.run("inspect", "--format", f"{{{{{field}}}}}", name)


def check_image(docker: Docker, image: str, lock: str) -> None:
    """Check the labels, the SBOM and the lock of an image; print its size."""
    size = int(inspect(docker, image, ".Size")) / 1e6
    print(f"{image}: {size:.0f} MB", flush=True)
    labels = json.loads(inspect(docker, image, "json .Config.Labels"))
    check("labels", labels["org.opencontainers.image.title"] == "warptok", len(labels))
    created = docker.run("create", image)
    with tempfile.TemporaryDirectory() as folder:
        docker.run("cp", f"{created}:/opt/warptok/sbom.cdx.json", folder)
        bill = json.loads(Path(folder, "sbom.cdx.json").read_text())
    docker.run("rm", created)
    parts = {part["name"].lower(): part["version"] for part in bill["components"]}
    locked = (ROOT / "deploy/locks" / f"{lock}.txt").read_text()
    pinned = (
        f"numpy=={parts['numpy']} " in locked and f"tokenizers=={parts['tokenizers']} " in locked
    )
    check(f"{bill['bomFormat']} {bill['specVersion']} lists the lock and Debian's libc", pinned)
    check("the SBOM has Debian's packages", "libc6" in parts, f"{len(parts)} components")


def check_rights(docker: Docker, name: str) -> None:
    """Check the user, the capabilities and the root file system of a running container."""
    process = Path("/proc", inspect(docker, name, ".State.Pid"))
    lines = (process / "status").read_text().splitlines()
    status = {line.partition(":")[0]: line.partition(":")[2].split() for line in lines}
    check("runs as 10001", set(status["Uid"]) == {USER} and set(status["Gid"]) == {USER})
    check(
        "has no capabilities",
        {*status["CapEff"], *status["CapPrm"], *status["CapBnd"]} == {"0" * 16},
    )
    check("gets no new privileges", status["NoNewPrivs"] == ["1"])
    mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    [options] = [mount[5] for mount in mounts if mount[4] == "/"]
    check("the root file system is read-only", "ro" in options.split(","))
    wait_for("healthy", lambda: inspect(docker, name, ".State.Health.Status") == "healthy")
    check("Docker's health check says healthy", True)


def stop_under_load(docker: Docker, name: str, body: dict[str, object], path: str) -> None:
    """Stop a container while clients send requests; nothing that was accepted may be lost."""
    counts = {"answered": 0, "refused": 0, "lost": 0, "other": 0}
    lock, stopped = threading.Lock(), threading.Event()

    def send() -> None:
        while not stopped.is_set():
            try:
                status, _ = request("POST", path, body)
                outcome = "answered" if status == 200 else "other"
            except ConnectionRefusedError:
                outcome = "refused"
                time.sleep(0.01)
            except (OSError, http.client.HTTPException):
                outcome = "lost"
            with lock:
                counts[outcome] += 1

    threads = [threading.Thread(target=send) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    begin = time.monotonic()
    docker.run("stop", "--time", "40", name)
    seconds = time.monotonic() - begin
    stopped.set()
    for thread in threads:
        thread.join()
    found = {"counts": counts, "seconds": round(seconds, 1)}
    check("SIGTERM under load loses nothing", not counts["lost"] and counts["answered"] > 0, found)
    check("the exit code is 0", inspect(docker, name, ".State.ExitCode") == "0")


def operate_cpu(docker: Docker, image: str, folder: Path) -> bytes:
    """Operate the image of the whole service; return a tokenizer.json."""
    keys = folder / "keys"
    keys.mkdir()
    keys.chmod(0o777)
    mount = f"{keys}:/keys"
    arguments = ["key", "operator", "--file", "/keys/keys.json"]
    scopes = ["encode", "decode", "manage"]
    printed = docker.run("run", "--rm", "--volume", mount, image, *arguments, "--scopes", *scopes)
    key = printed.split()[-1]
    options = ["--volume", "store:/var/lib/warptok", "--volume", f"{mount}:ro"]
    options += ["--env", "WARPTOK_API_KEYS_FILE=/keys/keys.json"]
    text = {"vocabulary": "mine", "text": "Hello, world"}
    with container(docker, image, *options) as name:
        check_rights(docker, name)
        path = "/v1/vocabularies/gpt2?format=tokenizer.json"
        status, document = request("GET", path, key=key)
        document = document if isinstance(document, bytes) else json.dumps(document).encode()
        check("a vocabulary is downloaded", status == 200)
        status, answer = request("PUT", "/v1/vocabularies/mine", document, key)
        check("it is uploaded", status == 201, answer.get("digest", answer))
        status, before = request("POST", "/v1/encode", text, key)
        check("the upload encodes", before.get("ids") == [15496, 11, 995], before)
        fasta = request("POST", "/v1/encode/fasta?vocabulary=gpn", b">a\nACGT\n", key)
        check("FASTA becomes Arrow", fasta[0] == 200)
        docker.run("stop", "--time", "40", name)
        check("the exit code is 0", inspect(docker, name, ".State.ExitCode") == "0")
    with container(docker, image, *options):
        check(
            "a new container has the upload", request("POST", "/v1/encode", text, key)[1] == before
        )
    with container(docker, image, "--volume", "store:/var/lib/warptok") as name:
        stop_under_load(docker, name, text, "/v1/encode")
    return document


def operate_render(docker: Docker, image: str, folder: Path, document: bytes) -> None:
    """Operate the image that renders."""
    model = folder / "model"
    model.mkdir()
    (model / "tokenizer.json").write_bytes(document)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    (model / "config.json").write_text('{"_name_or_path": "a/model"}')
    options = ["--volume", f"{model}:/mnt/models/base:ro"]
    with container(docker, image, *options) as name:
        check_rights(docker, name)
        path = "/v1/chat/completions/render"
        status, answer = request("POST", path, {"model": "a/model"} | CHAT)
        check("a chat is rendered", status == 200 and len(answer["token_ids"]) > 3, answer)
        status, answer = request("POST", "/v1/encode/fasta?vocabulary=model", b">a\nACGT\n")
        check(
            "what is left out names its extra", status == 501 and "warptok[" in str(answer), answer
        )
        stop_under_load(docker, name, {"model": "a/model"} | CHAT, path)
    command = ["run", "--rm", *options, "--env", "WARPTOK_GRPC=true", image]
    check("gRPC, which is left out, ends the start", docker.try_run(*command) == 2)


def main() -> None:
    """Build and operate the images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="+", default=["cpu", "render"])
    parser.add_argument("--only-build", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="warptok-images-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        docker = Docker(folder)
        try:
            make_base(docker, folder)
            for target in arguments.targets:
                docker.build(target, [])
                check_image(docker, target, target)
            if not arguments.only_build:
                document = operate_cpu(docker, "cpu", folder)
                operate_render(docker, "render", folder, document)
        finally:
            docker.stop()


if __name__ == "__main__":
    main()
