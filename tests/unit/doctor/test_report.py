"""How findings are told: bounded in time, on a line, without a secret."""

from __future__ import annotations

import io
import json
import threading
from typing import TYPE_CHECKING, NoReturn

from delta_cdc.core.errors import TableNotFound
from delta_cdc.doctor import Questions, report
from delta_cdc.doctor.report import Check, examined, failed, hidden, ok, print_report, skipped, warning

if TYPE_CHECKING:
    from collections.abc import Collection

    import pytest

    from delta_cdc.doctor.report import Result


def tell(*checks: Check, as_json: bool = False, secrets: Collection[str] = ()) -> tuple[int, str]:
    out = io.StringIO()
    code = print_report(examined(checks, timeout=60, secrets=secrets), out, as_json=as_json)
    return code, out.getvalue()


def test_exit_code_and_last_line() -> None:
    well = Check("a", lambda: ok("fine"))
    aside = Check("b", lambda: skipped("not asked"))
    odd = Check("c", lambda: warning("odd", "look."))
    ill = Check("d", lambda: failed("broken", "mend it."))
    code, text = tell(well, aside, odd)
    assert code == 0
    assert text.splitlines() == [
        "ok       a                fine",
        "skipped  b                not asked",
        "warning  c                odd Remedy: look.",
        "0 failed, 1 warning, 1 ok, 1 skipped",
    ]
    code, text = tell(well, ill, odd, as_json=True)
    found = json.loads(text)
    assert code == 1
    assert found["status"] == "failed"
    assert found["counts"] == {"ok": 1, "warning": 1, "failed": 1, "skipped": 0}
    assert [check["remedy"] for check in found["checks"]] == ["", "mend it.", "look."]
    assert json.loads(tell(well, odd, as_json=True)[1])["status"] == "warning"


def test_a_path_that_is_no_text_is_printed() -> None:
    _, text = tell(Check("a", lambda: ok("/tmp/\udcff is writable")))
    assert text.encode().splitlines()[0].endswith(b"/tmp/\\udcff is writable")


def test_a_check_that_raises_is_a_finding() -> None:
    def gone() -> NoReturn:
        raise TableNotFound("Nothing is at /t.", remedy="correct the path.")

    def odd() -> NoReturn:
        raise ZeroDivisionError("so\nit\nwent\n" + "x\n" * 1000 + "y")

    code, text = tell(Check("table", gone), Check("other", odd))
    first, second, last = text.splitlines()
    assert code == 1
    assert first == "failed   table            TableNotFound: Nothing is at /t. Remedy: correct the path."
    assert "ZeroDivisionError: so it went x x" in second
    assert "x x y" in second
    assert last.startswith("2 failed")


def test_a_check_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "GRACE", 0.0)
    never = threading.Event()

    def hang() -> Result:
        never.wait()
        return ok("at last")

    found = list(examined([Check("a", hang), Check("b", lambda: ok("fine"))], timeout=0.05, secrets=()))
    never.set()
    assert [entry.status for entry in found] == ["failed", "ok"]
    assert "no answer within 0.05 s" in found[0].found
    assert "--timeout" in found[0].remedy


def test_secrets_are_hidden_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-environment")
    asked = Questions(
        storage_options={"aws_access_key_id": "AKIA1234", "account_key": "of-options=="},
        remotes=("sc://host:1/;token=of-a-server;user_id=alice",),
        confs={
            "spark.hadoop.fs.s3a.secret.key": "of-a-conf",
            "spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net": "of-azure",
        },
    )
    said = (
        "AKIA1234 alice of-the-environment of-options== of-a-server of-a-conf of-azure "
        "http://me:pass@host/ ?sig=abc&x=1 ;token=other;"
    )
    assert (
        hidden(said, asked.secrets)
        == "AKIA1234 alice *** *** *** *** *** http://me:***@host/ ?sig=***&x=1 ;token=***;"
    )
    _, text = tell(Check("a", lambda: failed(said, said)), secrets=asked.secrets)
    _, in_json = tell(Check("a", lambda: failed(said, said)), secrets=asked.secrets, as_json=True)
    for secret in (
        "of-the-environment",
        "of-options==",
        "of-a-server",
        "of-a-conf",
        "of-azure",
        ":pass@",
        "sig=abc",
    ):
        assert secret not in text + in_json


def test_a_secret_inside_of_another_value_is_hidden() -> None:
    said = "endpoint=https://host/a?sig=hid&x=1 spark.hadoop.fs.s3a.encryption.key=hid== url='x?token=hid'"
    assert hidden(said, ()) == (
        "endpoint=https://host/a?sig=***&x=1 spark.hadoop.fs.s3a.encryption.key=*** url='x?token=***'"
    )
    assert hidden("x=" * 2_000 + "token=hid; token=", ()) == "x=" * 2_000 + "token=***; token="
