"""When a certificate expires, and what is said of one that has or cannot be read again."""

from __future__ import annotations

import os
import ssl
from time import time

import pytest

from service.core.settings import Settings
from service.security import certificates as module
from service.security.certificates import Certificates, read_expiry
from service.server.app import create_app
from tests.support.certificates import make_certificate
from tests.support.fake_engine import FakeEngine

DAY_S = 86_400


@pytest.mark.parametrize("days", [2, 20_000])
def test_the_expiry_is_what_openssl_says(tmp_path, days):
    """Up to 2049 the time has two figures of the year, later four."""
    made = make_certificate(tmp_path, "own", days=days)
    chain = made.certificate.read_bytes()
    decoded = ssl._ssl._test_decode_cert(str(made.certificate))  # type: ignore[attr-defined]
    assert read_expiry(chain) == ssl.cert_time_to_seconds(decoded["notAfter"])
    assert abs(read_expiry(chain) - time() - days * DAY_S) < DAY_S
    other = make_certificate(tmp_path, "other", days=9).certificate.read_bytes()
    assert read_expiry(chain + other) == read_expiry(chain)


def test_metrics_tell_the_time_left_and_whether_a_file_cannot_be_read(tmp_path):
    made = make_certificate(tmp_path, "own", days=2)
    settings = Settings(preload="none", tls_certificate=made.certificate, tls_key=made.key)
    service = create_app(settings, FakeEngine()).service

    def read() -> tuple[str, float]:
        lines = service.metrics.exposition()[0].decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        remaining_s = float(values["warptok_certificate_remaining_seconds"])
        return values['warptok_file_stale{file="certificate"}'], remaining_s

    stale, remaining_s = read()
    assert stale == "0.0" and DAY_S < remaining_s <= 2 * DAY_S
    content = made.certificate.read_bytes()
    made.certificate.write_bytes(b"garbage")
    service.certificates.refresh()
    assert read()[0] == "1.0"
    made.certificate.write_bytes(content)
    os.utime(made.certificate, ns=(0, 0))
    service.certificates.refresh()
    assert read()[0] == "0.0"


def test_an_expired_certificate_is_told_at_the_start_and_when_it_is_read(
    tmp_path, caplog, monkeypatch
):
    made = make_certificate(tmp_path, "own", days=2)
    later = time() + 3 * DAY_S
    monkeypatch.setattr(module, "time", lambda: later)
    certificates = Certificates(made.certificate, made.key, None)
    assert certificates.remaining_s < 0
    certificates.reload()
    assert caplog.text.count("expired; clients refuse it") == 2
