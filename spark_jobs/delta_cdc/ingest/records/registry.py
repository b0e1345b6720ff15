"""Read schemas from a registry over HTTP: Confluent's, or Apicurio's (API v2 and v3).

A schema never changes under its id, so each is requested once. Schemas that refer to others are returned with
these inside. No message has a secret: neither headers nor credentials of an address.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from delta_cdc.core import codec
from delta_cdc.core.errors import InvalidConfiguration, SourceUnreadable, StoreUnavailable
from delta_cdc.ingest.record import Invalid

#: Seconds for one request.
TIMEOUT = 20.0
#: Schemas that one schema may refer to, also through others.
_MOST_REFERENCES = 100
_PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NOT_FOUND = 404


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect, because the next server would get the credentials."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Registry:
    """A schema registry.

    :param url: its address; Apicurio's has ``/apis/registry/v2`` or ``/v3`` in it. It may contain a user and
        a password
    :param user: the user, or the key of an API
    :param password: the password of ``user``
    :param headers: further headers of requests, such as ``Authorization``
    :param ca_file: a PEM file with the certificates to trust; None trusts those of the system
    :param uses_content_ids: whether ids that do not say it are Apicurio's ids of contents, not global ids;
        None: those that Apicurio's serializers of the API's version write (content ids since v3)
    :param timeout: seconds for one request
    :raises InvalidConfiguration: the address or the file cannot be used
    """

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        uses_content_ids: bool | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        try:
            parts = urlsplit(url.rstrip("/"))
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme not in ("http", "https"):
            raise InvalidConfiguration(
                "The address of the schema registry is not of the form https://host:port.",
                remedy="correct the address.",
            )
        shown = f"[{host}]" if ":" in host else host
        self.url = urlunsplit((parts.scheme, f"{shown}:{port}" if port else shown, parts.path, "", ""))
        self._headers = {"Accept": "application/json, */*;q=0.5", **(headers or {})}
        if user is None and parts.username:
            user, password = unquote(parts.username), unquote(parts.password or "")
        if user is not None:
            token = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._opener = build_opener(_NoRedirects, HTTPSHandler(context=_context(ca_file)))
        self._timeout = timeout
        self._is_apicurio = "/apis/registry/" in self.url
        is_newer = "/apis/registry/v3" in self.url
        self._uses_content_ids = is_newer if uses_content_ids is None else uses_content_ids
        self._known: dict[tuple[int, bool], str | Invalid] = {}

    @staticmethod
    def of(options: Mapping[str, str]) -> Registry:
        """Return the registry of some options (:func:`delta_cdc.core.kafka_options.for_registry`).

        :raises InvalidConfiguration: the address or the file cannot be used
        """
        user, _, password = options.get("basic.auth.user.info", "").partition(":")
        token, use_id = options.get("bearer.auth.token"), options.get("use-id")
        return Registry(
            options["url"].strip(),
            user=user or None,
            password=password,
            headers={"Authorization": f"Bearer {token}"} if token else None,
            ca_file=options.get("ssl.ca.location"),
            uses_content_ids=None if use_id is None else use_id == "contentId",
        )

    def schema(self, number: int, *, is_content: bool | None = None) -> str | Invalid | None:
        """Return the schema with an id, as JSON, with the schemas that it refers to.

        :param is_content: whether the id is Apicurio's id of a content, not its global id; None: it does not
            say it
        :return: why the schema is not one of Avro, for an id that is of another format, or is noise; None for
            an unknown id
        :raises SourceUnreadable: the registry refuses the credentials, or lacks what the schema refers to
        :raises StoreUnavailable: the registry does not answer
        :raises InvalidConfiguration: at the address is no registry
        """
        if is_content is None:
            is_content = self._uses_content_ids
        found = self._known.get((number, is_content))
        if found is None:
            text = (
                self._get_from_apicurio(number, is_content)
                if self._is_apicurio
                else self._get_from_confluent(number)
            )
            if text is None:
                return None
            found = self._known[number, is_content] = text
        return found

    def _get_from_apicurio(self, number: int, is_content: bool) -> str | None:
        kind = "contentIds" if is_content else "globalIds"
        query = "references=DEREFERENCE" if "/apis/registry/v3" in self.url else "dereference=true"
        return self._get(f"/ids/{kind}/{number}?{query}")

    def _get_from_confluent(self, number: int) -> str | Invalid | None:
        text = self._get(f"/schemas/ids/{number}")
        if text is None:
            return None
        answer = self._parsed(text)
        kind = answer.get("schemaType") or "AVRO"
        if kind != "AVRO":
            return Invalid(f"not Avro: schema {number} of the registry is of the type {str(kind)[:50]}")
        schema, references = self._text_of(answer), answer.get("references")
        if not references:
            return schema
        definitions: dict[str, Any] = {}
        self._collect(references, definitions, set())
        try:
            return json.dumps(inlined(self._value_of(schema), definitions))
        except RecursionError:
            # Each reference may add the levels of its own schema.
            raise self._too_many() from None

    def _collect(self, references: Any, definitions: dict[str, Any], seen: set[tuple[str, str]]) -> None:
        """Add the schemas that are referred to, by their full names; those that they refer to, first."""
        waiting = [references]
        while waiting:
            found = waiting.pop()
            for reference in found if isinstance(found, list) else ():
                if not isinstance(reference, Mapping):
                    continue
                subject, version = str(reference.get("subject")), str(reference.get("version"))
                if (subject, version) in seen:
                    continue
                seen.add((subject, version))
                if len(seen) > _MOST_REFERENCES:
                    raise self._too_many()
                path = f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}"
                text = self._get(path)
                if text is None:
                    raise SourceUnreadable(
                        f"The registry at {self.url} has no version {version} of {subject}, "
                        "which a schema refers to.",
                        remedy="restore the deleted version in the registry.",
                    )
                answer = self._parsed(text)
                definitions[str(reference.get("name"))] = self._value_of(self._text_of(answer))
                waiting.append(answer.get("references"))

    def _too_many(self) -> SourceUnreadable:
        return SourceUnreadable(
            f"A schema of the registry at {self.url} refers to too many others, or to too many levels.",
            remedy=f"register it with at most {_MOST_REFERENCES} references.",
        )

    def _text_of(self, answer: Mapping[str, Any]) -> str:
        schema = answer.get("schema")
        if not isinstance(schema, str):
            raise self._no_registry("its answer has no schema")
        return schema

    def _value_of(self, schema: str) -> Any:
        try:
            return codec.parsed(schema)
        except codec.UnreadableJson as error:
            raise SourceUnreadable(
                f"A schema of the registry at {self.url} is {error}.", remedy="correct it in the registry."
            ) from error

    def _parsed(self, text: str) -> Mapping[str, Any]:
        try:
            answer = codec.parsed(text)
        except codec.UnreadableJson:
            answer = None
        if not isinstance(answer, Mapping):
            raise self._no_registry("its answer is no JSON object")
        return answer

    # -- HTTP -----------------------------------------------------------------------------------
    def _get(self, path: str) -> str | None:
        """Return the text of an answer; None if the registry has nothing of this name."""
        try:
            request = Request(self.url + path, headers=self._headers)
            with self._opener.open(request, timeout=self._timeout) as answer:
                return self._text(answer)
        except HTTPError as error:
            with error:
                if error.code == _NOT_FOUND and self._is_unknown(self._body(error)):
                    return None
                raise self._refused(error.code) from None
        except URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise InvalidConfiguration(
                    f"The certificate of the registry at {self.url} is not trusted: "
                    f"{error.reason.verify_message}.",
                    remedy="give the file with the certificate of its authority.",
                ) from None
            raise self._silent(str(error.reason)) from None
        except ValueError:
            # A header with a line break; its text must not be shown.
            raise InvalidConfiguration(
                "The headers for the schema registry cannot be sent.",
                remedy="remove line breaks and characters beyond ISO-8859-1 from them.",
            ) from None
        except (OSError, HTTPException) as error:
            raise self._silent(type(error).__name__) from None

    def _body(self, answer: IO[bytes]) -> str:
        try:
            return answer.read(codec.MOST_BYTES + 1).decode(errors="replace")
        except (OSError, HTTPException) as error:
            raise self._silent(type(error).__name__) from None

    def _text(self, answer: HTTPResponse) -> str:
        data = answer.read(codec.MOST_BYTES + 1)
        if len(data) > codec.MOST_BYTES:
            raise self._no_registry(f"its answer has more than {codec.MOST_BYTES} bytes")
        if answer.length:
            # A read of so many bytes does not raise if the connection ends before.
            raise IncompleteRead(data, answer.length)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self._no_registry("its answer is not UTF-8") from None

    def _is_unknown(self, text: str) -> bool:
        """Return whether the registry itself says that it has no such schema."""
        try:
            answer = codec.parsed(text)
        except codec.UnreadableJson:
            return False
        if not isinstance(answer, Mapping):
            return False
        code, name = answer.get("error_code"), str(answer.get("name"))
        return str(code).startswith("404") and (
            name.endswith("NotFoundException") if self._is_apicurio else code != _NOT_FOUND
        )

    def _refused(self, code: int) -> Exception:
        if code in (401, 403):
            return SourceUnreadable(
                f"The schema registry at {self.url} refuses these credentials, or access to its schemas "
                f"(status {code}).",
                remedy="correct the user and the password of its connection, or grant reading of schemas.",
            )
        if 300 <= code < 400 or code in (_NOT_FOUND, 405):
            return self._no_registry(f"it answers with the status {code}")
        return self._silent(f"it answers with the status {code}")

    def _no_registry(self, why: str) -> InvalidConfiguration:
        return InvalidConfiguration(
            f"At {self.url} is no schema registry: {why}.",
            remedy="correct the address: Confluent's without a path (Karapace and Redpanda, too), Apicurio's "
            "with /apis/registry/v2 or v3, or with /apis/ccompat/v7.",
        )

    def _silent(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"The schema registry at {self.url} does not answer: {why}.",
            remedy="check that it runs, and that this machine reaches it; then try again.",
        )


def _context(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise InvalidConfiguration(
            f"The file of certificates {ca_file!r} cannot be read: {error}.",
            remedy="name a PEM file that is on this machine.",
        ) from error


# -- references ---------------------------------------------------------------------------------
def inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema of Avro with definitions instead of the names that it does not define itself.

    :param definitions: schemas by their full names, which may refer to each other
    """
    return _inlined(schema, dict(definitions), "")


def _inlined(schema: Any, definitions: dict[str, Any], namespace: str) -> Any:
    if isinstance(schema, str):
        return _by_name(schema, definitions, namespace)
    if isinstance(schema, list):
        return [_inlined(branch, definitions, namespace) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    own_namespace, own_name = schema.get("namespace"), schema.get("name")
    if isinstance(own_name, str) and "." in own_name:
        namespace = own_name.rpartition(".")[0]
    elif isinstance(own_namespace, str):
        namespace = own_namespace
    found = dict(schema)
    for key in ("type", "items", "values"):
        if key in found:
            found[key] = _inlined(found[key], definitions, namespace)
    fields = found.get("fields")
    if isinstance(fields, list):
        # A field is an object with a type, and has no namespace.
        found["fields"] = [
            {**field, "type": _inlined(field.get("type"), definitions, namespace)}
            if isinstance(field, dict)
            else field
            for field in fields
        ]
    return found


def _by_name(name: str, definitions: dict[str, Any], namespace: str) -> Any:
    full = name if "." in name or not namespace else f"{namespace}.{name}"
    key = full if full in definitions else name
    if name in _PRIMITIVE or key not in definitions:
        return name
    # The second time, its name is enough.
    definition = definitions.pop(key)
    if isinstance(definition, dict) and "namespace" not in definition:
        definition = {**definition, "namespace": ""}
    return _inlined(definition, definitions, "")
