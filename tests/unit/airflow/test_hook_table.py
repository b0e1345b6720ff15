"""Storage options from an Airflow connection, and what never gets out of it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk._shared.secrets_masker import _secrets_masker
from airflow.sdk.definitions.connection import Connection

from airflow_delta_cdc.hooks import table as hooks
from airflow_delta_cdc.hooks.table import DeltaTableHook, astorage_options, storage_options
from airflow_delta_cdc.provider_info import get_provider_info
from delta_cdc.core.errors import DeltaConnectionNotFound, InvalidConfiguration
from delta_cdc.core.secrets import redacted, secrets
from tests.support.http_store import BUCKET, Fault, HttpStore
from tests.unit.airflow.tables import append

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "s3cr3t/of+nobody"
KEY_FILE = {"client_email": "a@b", "private_key_id": "1", "private_key": "-----BEGIN\nabcdef\n-----END\n"}


@pytest.fixture
def delta(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Create a connection of type delta; gives its id."""

    def create(*, conn_id: str = "lake", conn_type: str = "delta", extra: Any = None, **fields: Any) -> str:
        value = {"conn_type": conn_type, **fields}
        if extra is not None:
            value["extra"] = extra
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(value))
        return conn_id

    return create


# -- fields become options ------------------------------------------------------------------------
#: What the form stores of fields that nobody filled in.
_UNFILLED = {
    "region": "",
    "role_arn": None,
    "virtual_hosted_style": False,
    "allow_http": "false",
    "storage_options": None,
}


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, None),
        (
            {"login": "AKIA1", "password": SECRET, "extra": {"region": "eu-central-1"}},
            {"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-central-1"},
        ),
        (
            {
                "host": "store.local",
                "port": 9000,
                "extra": {"storage": "s3", "allow_http": True, "virtual_hosted_style": "True"},
            },
            {
                "AWS_ENDPOINT_URL": "http://store.local:9000",
                "allow_http": "true",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
            },
        ),
        (
            {"host": "https://store.local/", "extra": {"storage": "S3", "region": ""}},
            {"AWS_ENDPOINT_URL": "https://store.local"},
        ),
        (
            {"extra": {"role_arn": "arn:aws:iam::1:role/r", "web_identity_token_file": "/var/token"}},
            {"AWS_ROLE_ARN": "arn:aws:iam::1:role/r", "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/token"},
        ),
        (
            {"login": "account", "password": SECRET, "extra": {"client_id": "c", "tenant_id": "t"}},
            {
                "AZURE_STORAGE_ACCOUNT_NAME": "account",
                "AZURE_STORAGE_CLIENT_ID": "c",
                "AZURE_STORAGE_TENANT_ID": "t",
                "AZURE_STORAGE_CLIENT_SECRET": SECRET,
            },
        ),
        (
            {"login": "account", "extra": {"sas_token": "sv=1&sig=abc"}},
            {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_SAS_KEY": "sv=1&sig=abc"},
        ),
        (
            {"login": "account", "password": SECRET, "extra": {"storage": "azure", **_UNFILLED}},
            {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": SECRET},
        ),
        ({"extra": {"service_account_path": "/key.json"}}, {"GOOGLE_SERVICE_ACCOUNT": "/key.json"}),
        ({"extra": {"service_account_key": KEY_FILE}}, {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(KEY_FILE)}),
        (
            {"password": json.dumps(KEY_FILE), "extra": {"storage": "gcs"}},
            {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(KEY_FILE)},
        ),
        ({"extra": {"storage_options": {"max_retries": 3}}}, {"max_retries": "3"}),
        ({"extra": {"storage_options": '{"timeout": "10s"}'}}, {"timeout": "10s"}),
    ],
)
def test_fields_become_options(
    delta: Callable[..., str], fields: dict[str, Any], options: dict[str, str] | None
) -> None:
    assert DeltaTableHook(delta(**fields)).storage_options() == options


@pytest.mark.parametrize("spelling", ["aws_region", "AWS_REGION", "region"])
def test_free_form_options_win_in_any_spelling(delta: Callable[..., str], spelling: str) -> None:
    conn_id = delta(extra={"region": "eu-central-1", "storage_options": {spelling: "us-east-1"}})
    assert DeltaTableHook(conn_id).storage_options() == {spelling: "us-east-1"}
    conn_id = delta(extra={"region": "eu-central-1", "endpoint_url": "http://a"})
    of_the_task = {spelling: "us-east-1"}
    assert storage_options(conn_id, of_the_task) == {"AWS_ENDPOINT_URL": "http://a", **of_the_task}


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"login": "AKIA1", "password": SECRET}, "which storage"),
        ({"host": "store.local"}, "which storage"),
        ({"extra": {"storage": "s4"}}, "'s4'"),
        ({"extra": {"storage": "azure", "region": "r"}}, "region"),
        ({"extra": {"tenant_id": "t", "region": "r"}}, "region, tenant_id"),
        ({"extra": {"regoin": "r"}}, "did you mean region"),
        ({"extra": {"storage_options": "no json"}}, "no JSON object"),
        ({"extra": {"storage_options": ["a"]}}, "no JSON object"),
        ({"extra": "{broken"}, "no JSON object"),
        ({"extra": {"storage": "s3"}, "login": "AKIA1"}, "only one of"),
        ({"extra": {"storage": "s3"}, "password": SECRET}, "only one of"),
        ({"extra": {"role_arn": "arn"}}, "web_identity_token_file"),
        ({"conn_type": "aws"}, "of type aws"),
    ],
)
def test_what_cannot_be_meant_is_named_without_its_secrets(
    delta: Callable[..., str], fields: dict[str, Any], match: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=match) as caught:
        DeltaTableHook(delta(**fields)).storage_options()
    assert SECRET not in str(caught.value)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the id of a connection that no secrets backend has."""
    monkeypatch.setattr(
        "airflow.sdk.execution_time.supervisor.ensure_secrets_backend_loaded", lambda *_: [], raising=True
    )
    return "nowhere"


def test_a_missing_connection_has_a_name(nowhere: str) -> None:
    with pytest.raises(DeltaConnectionNotFound, match="'nowhere'"):
        DeltaTableHook(nowhere).storage_options()
    with pytest.raises(DeltaConnectionNotFound, match="'nowhere'"):
        asyncio.run(astorage_options(nowhere, None))


# -- the module's functions -----------------------------------------------------------------------
@pytest.mark.parametrize("nothing", [None, ""])
def test_nothing_said_is_nothing_given(nothing: str | None) -> None:
    assert storage_options(nothing, None) is None
    assert storage_options(nothing, {}) is None
    assert asyncio.run(astorage_options(nothing, None)) is None
    assert storage_options(nothing, {"timeout": "1s"}) == {"timeout": "1s"}


def test_within_an_event_loop_only_asynchronous_calls_are_made(
    delta: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conn_id = delta(login="AKIA1", password=SECRET, extra={"region": "r"})

    def blocking(*_: Any, **__: Any) -> Any:
        raise AssertionError("a call that blocks the loop")

    monkeypatch.setattr(DeltaTableHook, "get_connection", blocking)
    monkeypatch.setattr(hooks, "mask_secret", blocking)
    monkeypatch.setattr(Connection, "extra_dejson", property(blocking))
    found = asyncio.run(astorage_options(conn_id, {"timeout": "1s"}))
    assert found is not None
    assert found["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert found["timeout"] == "1s"


# -- secrets --------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["sync", "async"])
def test_every_secret_is_masked(delta: Callable[..., str], monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    # Secrets that other tests masked may be parts of these; Airflow tries them in no fixed order.
    monkeypatch.setattr(_secrets_masker(), "patterns", set())
    monkeypatch.setattr(_secrets_masker(), "replacer", None)
    hidden = ["token-of-a-session", "key-of-an-account", "phrase-of-a-client"]
    conn_id = delta(
        login="AKIA1",
        password=SECRET,
        extra={
            "session_token": hidden[0],
            "storage_options": {"azure_storage_account_key": hidden[1], "AZURE_CLIENT_SECRET": hidden[2]},
        },
    )
    if how == "sync":
        storage_options(conn_id, None)
    else:
        asyncio.run(astorage_options(conn_id, None))
    for secret in (SECRET, *hidden):
        assert _secrets_masker().redact(f"before {secret} after") == "before *** after"


def test_parts_of_a_secret_are_secrets() -> None:
    sas = {"AZURE_STORAGE_SAS_KEY": "sv=1&sig=a%2Fb%3D&se=2"}
    found = secrets({**sas, "google_service_account_key": json.dumps(KEY_FILE)})
    key = KEY_FILE["private_key"]
    assert {"a%2Fb%3D", "a/b=", key, key.replace("\n", "\\n"), json.dumps(KEY_FILE)} < set(found)
    encrypting = {"AWS_SSE_CUSTOMER_KEY_BASE64": "one", "azure_storage_encryption_key": "two"}
    places = {"AWS_REGION": "r", "AZURE_FEDERATED_TOKEN_FILE": "/f", "AWS_ACCESS_KEY_ID": "AKIA1"}
    assert sorted(secrets({**encrypting, **places, "AWS_SSE_KMS_KEY_ID": "arn"})) == ["one", "two"]


def test_a_password_in_an_address_is_a_secret() -> None:
    proxy = {"proxy_url": "http://me:hid%2Fden@proxy:3128", "AWS_ENDPOINT_URL": "http://store:9000/a:b@c"}
    assert sorted(secrets(proxy)) == ["hid%2Fden", "hid/den"]
    assert redacted("proxy http://me:hid%2Fden@proxy:3128 is away", proxy) == (
        "proxy http://me:***@proxy:3128 is away"
    )


# -- the test button ------------------------------------------------------------------------------
def test_button_without_a_table_says_what_was_understood(delta: Callable[..., str]) -> None:
    conn_id = delta(login="AKIA1", password=SECRET, extra={"region": "r"})
    worked, said = DeltaTableHook(conn_id).test_connection()
    assert worked
    assert "AWS_REGION, AWS_SECRET_ACCESS_KEY" in said
    assert SECRET not in said
    worked, said = DeltaTableHook(delta()).test_connection()
    assert worked
    assert "machine's own identity" in said


def test_button_reads_the_table(delta: Callable[..., str], tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    append(tmp_path / "t", [2])
    conn_id = delta(extra={"test_table": str(tmp_path / "t")})
    assert DeltaTableHook(conn_id).test_connection() == (
        True,
        f"{tmp_path / 't'} is a Delta table, and its newest version is 1.",
    )
    assert DeltaTableHook(conn_id).newest_version(str(tmp_path / "t")) == 1


def test_a_host_may_have_its_port(delta: Callable[..., str]) -> None:
    """The form has a field for each."""
    hosts = ("store:9000", "https://store:9000/", "store")
    for host in hosts:
        conn_id = delta(host=host, port=9000, extra={"storage": "s3"})
        assert DeltaTableHook(conn_id).storage_options()["AWS_ENDPOINT_URL"] == "https://store:9000"


def test_button_reads_a_table_of_an_object_store(delta: Callable[..., str], tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    with HttpStore(tmp_path) as store:
        conn_id = delta(
            login="AKIA1",
            password=SECRET,
            host=store.endpoint,
            extra={"storage": "s3", "region": "r", "allow_http": True, "test_table": f"s3a://{BUCKET}/t"},
        )
        worked, said = DeltaTableHook(conn_id).test_connection()
        assert worked, said
        assert store.requests
        store.faults = lambda _: Fault("denied")
        worked, said = DeltaTableHook(conn_id).test_connection()
    assert not worked
    assert "\n" not in said
    assert SECRET not in said


def test_button_waits_a_moment_and_hides_what_a_store_gives_away(
    delta: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leaky(*_: Any) -> int:
        raise RuntimeError(f"403 for {SECRET}\n{{dump of the client}}")

    async def never(*_: Any, **__: Any) -> int:
        await asyncio.Event().wait()
        return 0

    hook = DeltaTableHook(
        delta(login="AKIA1", password=SECRET, extra={"storage": "s3", "test_table": "s3://b/t"})
    )
    monkeypatch.setattr("delta_cdc.delta_log.table.DeltaLog.newest_version", leaky)
    assert hook.test_connection() == (False, "RuntimeError: 403 for *** {dump of the client}")
    monkeypatch.setattr("delta_cdc.delta_log.table.DeltaLog.newest_version", never)
    monkeypatch.setattr(hooks, "TEST_TIMEOUT", 0.01)
    worked, text = hook.test_connection()
    assert (worked, "did not answer" in text) == (False, True)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"test_table": "/not/there"}, "no Delta table at /not/there"),
        ({"test_table": "main.sales.orders"}, "catalog name"),
        ({"storage": "s4"}, "storage of the connection"),
    ],
)
def test_button_says_what_is_wrong(delta: Callable[..., str], extra: dict[str, str], said: str) -> None:
    worked, sentence = DeltaTableHook(delta(extra=extra)).test_connection()
    assert not worked
    assert said in sentence


# -- the form -------------------------------------------------------------------------------------
def _declared() -> dict[str, Any]:
    (found,) = (c for c in get_provider_info()["connection-types"] if c["connection-type"] == "delta")
    return found  # type: ignore[no-any-return]


def test_the_form_is_declared_for_every_field() -> None:
    declared = _declared()
    assert declared["hook-class-name"] == f"{DeltaTableHook.__module__}.{DeltaTableHook.__qualname__}"
    assert declared["hook-name"] == DeltaTableHook.hook_name
    fields = declared["conn-fields"]
    assert set(fields) == {*hooks._FIELDS, *hooks._OTHER_FIELDS}
    hidden = {name for name, field in fields.items() if field["schema"].get("format") == "password"}
    assert hidden == {name for name, field in hooks._FIELDS.items() if field.secret}


def test_airflow_reads_the_form() -> None:
    """The provider manager warns about what it can't use; here it must take all of it."""
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()
    form = {k: v for k, v in manager.connection_form_widgets.items() if k.startswith("extra__delta__")}
    behaviour = manager.field_behaviours["delta"]
    assert {widget.field_name for widget in form.values() if widget} == set(_declared()["conn-fields"])
    assert {w.field_name for w in form.values() if w.is_sensitive} >= {"session_token", "client_secret"}
    assert behaviour["relabeling"]["login"]
