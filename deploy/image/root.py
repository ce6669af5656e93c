"""Copies what Python and an environment need to run into the root folder of an image.

    python deploy/image/root.py /opt/warptok /image

The image has no shell and no package manager. Scanners find Debian's packages in
`/var/lib/dpkg/status.d`, and all packages in `sbom.cdx.json` of the environment.
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from py_compile import PycInvalidationMode

USER = 10001
# What only developers and terminals need.
NOT_NEEDED = (
    *(
        "ensurepip",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "test",
        "tkinter",
        "turtle.py",
        "turtledemo",
    ),
    *(
        "curses",
        "_curses*",
        "dbm",
        "_dbm*",
        "_gdbm*",
        "readline*",
        "sqlite3",
        "_sqlite3*",
        "_test*",
    ),
    *("__pycache__", "config-*", "dist-packages", "site-packages", "*.a"),
)
SYSTEM_FILES = (
    "/etc/debian_version",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/os-release",
    "/usr/lib/os-release",
    "/etc/ssl/certs/ca-certificates.crt",
)
SYSTEM_PACKAGES = ("base-files", "ca-certificates")
ELF = b"\x7fELF"
UNCHECKED_HASH = PycInvalidationMode.UNCHECKED_HASH  # No times of files, which change.


def copy(path: Path, image: Path) -> None:
    """Copy a file, a link with its target, or a folder to the same place in the image."""
    real = Path(os.path.realpath(path.parent)) / path.name  # /lib is a link to /usr/lib.
    target = image / real.relative_to("/")
    if target.exists() or target.is_symlink():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if real.is_symlink():
        target.symlink_to(os.readlink(real))
        copy((real.parent / os.readlink(real)), image)
    elif real.is_dir():
        shutil.copytree(real, target, symlinks=True)
    else:
        shutil.copy2(real, target)


def copy_python(image: Path, environment: Path) -> None:
    """Copy Python and its standard library, without what only developers use, and compile it."""
    library = Path(sysconfig.get_path("stdlib"))
    target = image / library.relative_to("/")
    ignored = shutil.ignore_patterns(*NOT_NEEDED)
    shutil.copytree(library, target, symlinks=True, ignore=ignored)
    copy(Path(os.readlink(environment / "bin/python")), image)
    compileall.compile_dir(
        target, quiet=1, stripdir=image, prependdir="/", invalidation_mode=UNCHECKED_HASH
    )


def elf_files(folder: Path) -> list[Path]:
    """Return the programs and shared libraries in a folder."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == ELF:
                    found.append(path)
    return found


def copy_libraries(image: Path) -> None:
    """Copy the shared libraries of the system that the programs in the image need."""
    needed: set[str] = set()
    for path in elf_files(image):
        listed = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
        needed.update(re.findall(r"(?:=> )?(/\S+) \(0x", listed))
    for name in sorted(needed):
        if not name.startswith(str(image)):
            copy(Path(name), image)


def copy_system(image: Path) -> None:
    """Copy files of the system, and make its folders, links and users."""
    for name in ("bin", "lib", "lib64", "sbin"):
        if Path("/", name).is_symlink() and (image / "usr" / name).is_dir():
            (image / name).symlink_to(f"usr/{name}")
    for name in SYSTEM_FILES:
        if Path(name).exists():
            copy(Path(name), image)
    (image / "tmp").mkdir()
    (image / "tmp").chmod(0o1777)
    (image / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/sbin/nologin\n"
        f"warptok:x:{USER}:{USER}::/nonexistent:/sbin/nologin\n"
    )
    (image / "etc/group").write_text(f"root:x:0:\nwarptok:x:{USER}:\n")
    (image / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    subprocess.run(["ldconfig", "-r", image], check=True)


def debian_packages(image: Path) -> dict[str, dict[str, str]]:
    """Return the fields of each Debian package of which the image has a file, by its name."""
    names = set(SYSTEM_PACKAGES)
    paths = [str(Path("/", path.relative_to(image))) for path in elf_files(image)]
    paths += [path.removeprefix("/usr") for path in paths if path.startswith("/usr/lib")]
    searched = subprocess.run(["dpkg", "-S", *paths], capture_output=True, text=True).stdout
    for line in searched.splitlines():
        names.add(line.partition(": ")[0].partition(":")[0])
    packages = {}
    for name in sorted(names):
        status = subprocess.run(["dpkg", "-s", name], capture_output=True, text=True)
        if status.returncode == 0:
            fields = re.findall(r"^(\w[\w-]*): (.*)$", status.stdout, re.MULTILINE)
            packages[name] = dict(fields)
    return packages


def record_packages(image: Path, environment: Path) -> None:
    """Write which Debian packages the image has, for scanners and licenses, and into the SBOM."""
    path = image / environment.relative_to("/") / "sbom.cdx.json"
    bill = json.loads(path.read_text())
    for name, fields in debian_packages(image).items():
        status = image / "var/lib/dpkg/status.d" / name
        status.parent.mkdir(parents=True, exist_ok=True)
        status.write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
        license = Path("/usr/share/doc", name, "copyright")
        if license.exists():
            copy(Path(os.path.realpath(license)), image)
        version, architecture = fields["Version"], fields["Architecture"]
        purl = f"pkg:deb/debian/{name}@{version}?arch={architecture}"
        component = {"type": "library", "name": name, "version": version, "purl": purl}
        bill["components"].append(component | {"bom-ref": purl})
    python = {"type": "application", "name": "python", "version": sys.version.split()[0]}
    bill["components"].append(python | {"bom-ref": "python"})
    path.write_text(json.dumps(bill, indent=2))


def main() -> None:
    """Write the root folder of an image."""
    environment, image = Path(sys.argv[1]), Path(sys.argv[2])
    image.mkdir()
    copy(environment, image)
    copy_python(image, environment)
    copy_libraries(image)
    copy_system(image)
    record_packages(image, environment)


if __name__ == "__main__":
    main()
