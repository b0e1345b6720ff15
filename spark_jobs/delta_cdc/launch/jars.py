"""The JARs that Spark does not ship (of Delta, Kafka, S3): resolve them once, cache them, check their hashes.

The resolver in Spark's own distribution (Ivy) fetches them, so that proxies and trust stores of the Java
installation apply. It runs with a custom settings file, whose only resolver is Maven Central. Spark's list
of resolvers also includes ``~/.m2``, where a POM without its JAR makes the resolution fail, and a second
repository that is queried for every parent POM. A company with a mirror names its own settings file in
``DELTA_CDC_IVY_SETTINGS``.

The installed packages determine the JARs: delta-spark determines the release of Delta, and pyspark's own JARs
those of Spark, Scala and Hadoop. Delta's ``configure_spark_with_delta_pip`` gives the same coordinates, but
imports pyspark, which a process that only plans does not load. The tables below have every JAR of each known
release with its SHA-256, so that neither a mirror nor a damaged cache can put other code into Spark. No
dependency of a POM is followed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from delta_cdc.core.errors import EnvironmentNotReady
from delta_cdc.core.storage_options import is_s3
from delta_cdc.launch.environment import bundled_version, java_binary, release, require_java, spark_home
from delta_cdc.launch.log_store import log_store_jar

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The folder of the JARs; default ``~/.cache/airflow-provider-delta-cdc``.
HOME_VARIABLE = "DELTA_CDC_HOME"
#: An Ivy settings file, which replaces Maven Central.
IVY_SETTINGS_VARIABLE = "DELTA_CDC_IVY_SETTINGS"

_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""

_IVY_MODULE = """\
<ivy-module version="2.0">
  <info organisation="delta-cdc" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default-&gt;master(*)">
{dependencies}  </dependencies>
</ivy-module>
"""

_MANIFEST = "manifest.json"
_RESOLVE_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class JarSet:
    """Some JARs that are used together.

    :param title: their name in messages
    :param folder: their folder under ``jars`` in the cache; each version has another folder
    :param pins: SHA-256 by Maven coordinates (``group:artifact:version``). A mirror serves the same bytes
    """

    title: str
    folder: str
    pins: Mapping[str, str]

    @property
    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of every JAR, by file name."""
        return {_file_name(coordinates): sha256 for coordinates, sha256 in self.pins.items()}

    @property
    def path(self) -> Path:
        """Return the folder in the cache."""
        return cache_home() / "jars" / self.folder

    def is_resolved(self) -> bool:
        """Return whether the cache has everything that :meth:`jars` returns."""
        hashes, folder = self.hashes, self.path
        try:
            manifest = json.loads((folder / _MANIFEST).read_text())
            return bool(manifest.keys() == hashes.keys()) and all(
                entry["sha256"] == hashes[name] and (folder / name).stat().st_size == entry["size"]
                for name, entry in manifest.items()
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            # After any error, :meth:`jars` fills the cache again.
            return False

    def jars(self) -> tuple[Path, ...]:
        """Return the paths of the JARs; resolve them first if the cache does not have them.

        A complete cache costs a few file look-ups. Several processes may resolve at the same time: each file
        appears as a whole, and the manifest, without which the files do not count, comes last.

        :raises EnvironmentNotReady: if Java or Spark is missing, the resolution fails, or a JAR differs from
            the published file
        """
        if not self.is_resolved():
            require_java()
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                # In the target's own folder, because a rename is atomic only within one file system.
                with tempfile.TemporaryDirectory(prefix=".resolving-", dir=self.path) as scratch:
                    self._publish(self._resolve(Path(scratch)))
            except OSError as error:
                raise EnvironmentNotReady(
                    f"The {self.title} cannot be kept in {self.path}: {error}.",
                    remedy=f"make the folder writable, or name another one in {HOME_VARIABLE}.",
                ) from error
        return tuple(self.path / name for name in sorted(self.hashes))

    def _resolve(self, scratch: Path) -> list[Path]:
        """Let Ivy resolve the JARs; return the files in ``scratch``."""
        settings, module, jars = scratch / "ivysettings.xml", scratch / "ivy.xml", scratch / "jars"
        settings.write_text(_IVY_SETTINGS)
        module.write_text(_ivy_module(self.pins))
        command = [
            str(java_binary()),
            # The options that spark-submit would pass to its own resolver, such as a proxy or a trust store.
            *shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", "")),
            *("-cp", str(spark_home() / "jars" / "*"), "org.apache.ivy.Main"),
            *("-settings", os.environ.get(IVY_SETTINGS_VARIABLE) or str(settings)),
            *("-ivy", str(module)),
            *("-cache", str(scratch / "cache")),
            *("-retrieve", f"{jars}/[organisation]_[artifact]-[revision].[ext]"),
        ]
        try:
            process = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_RESOLVE_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._failure(f"took longer than {_RESOLVE_TIMEOUT_SECONDS} s") from error
        if process.returncode != 0:
            raise self._failure(f"failed: {_last_complaint(process.stdout + process.stderr)}")
        return [jars / name for name in sorted(self.hashes)]

    def _publish(self, jars: list[Path]) -> None:
        manifest, hashes, folder = {}, self.hashes, self.path
        for jar in jars:
            if not jar.is_file():
                raise self._failure(f"gave no {jar.name}")
            digest = hashlib.sha256(jar.read_bytes()).hexdigest()
            if digest != hashes[jar.name]:
                raise self._failure(f"gave a {jar.name} with SHA-256 {digest}, not the published file")
            manifest[jar.name] = {"sha256": digest, "size": jar.stat().st_size}
        for jar in jars:
            jar.replace(folder / jar.name)
        draft = jars[0].parent / _MANIFEST
        draft.write_text(json.dumps(manifest, indent=1, sort_keys=True))
        draft.replace(folder / _MANIFEST)

    def _failure(self, outcome: str) -> EnvironmentNotReady:
        return EnvironmentNotReady(
            f"Resolving the {self.title} {outcome}.",
            remedy=(
                "give this machine access to Maven Central, or name an Ivy settings file with your mirror in "
                f"{IVY_SETTINGS_VARIABLE}, then try again."
            ),
        )


_Table = Mapping[tuple[str, ...], Mapping[str, str]]

#: SHA-256 by coordinates, by the versions of delta-spark, Spark and Scala. Maven Central has no JARs for
#: delta-spark 4.4.1.
_DELTA: _Table = {
    ("4.4.0", "4.2", "2.13"): {
        "io.delta:delta-kernel-api:{delta}": (
            "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11"
        ),
        "io.delta:delta-kernel-defaults:{delta}": (
            "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b"
        ),
        "io.delta:delta-kernel-unitycatalog:{delta}": (
            "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa"
        ),
        "io.delta:delta-spark_{spark}_{scala}:{delta}": (
            "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"
        ),
        "io.delta:delta-storage:{delta}": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
        "io.unitycatalog:unitycatalog-client:0.6.0": (
            "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19"
        ),
        "io.unitycatalog:unitycatalog-hadoop:0.6.0": (
            "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150"
        ),
    },
}

#: The same for Spark's connector to Kafka, and its dependencies that Spark does not ship, by Spark and Scala.
_KAFKA: _Table = {
    ("4.2.0", "2.13"): {
        "org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark}": (
            "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
        ),
        # Maven Central has no newer release of this JAR. The parts that the connector calls have not changed
        # since; only the warning that a Kerberos cluster gave no delegation token names a class that Spark
        # 4.1 removed.
        "org.apache.spark:spark-token-provider-kafka-0-10_{scala}:4.0.0": (
            "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
        ),
        "org.apache.kafka:kafka-clients:3.9.2": (
            "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"
        ),
        "org.apache.commons:commons-pool2:2.13.1": (
            "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f"
        ),
    },
}

# Hadoop names the SDK's bundle, half a gigabyte with every service of Amazon's. These are only the modules
# that S3A uses, with their dependencies. They include parts of large files (copies go through Netty, which
# Spark ships) and roles (sts). Client-side encryption and SSO are omitted: no setting of ours uses them.
_AWS_SDK_2_35_4 = {
    "annotations": "6f36bd87155d1dd85d6efbdd29e532e3759a022211feb71affebee1aa34f04b8",
    "apache-client": "6eade21b482724ed0a4613eaa95d20e47e7a81304bd28538ac427fece94a7740",
    "arns": "c63cc29f76a8527e9e10b621703163df541dc5cb315508dc2898518602c75380",
    "auth": "6b601323004833fb4a857ffc95db4795e0e6320eb93e64b1246c655c9ff04994",
    "aws-core": "fdb5fc8f1a48d97fa7d04d3460fb42f6973c7b1bbe1b9d317871ef0162bcb623",
    "aws-query-protocol": "9b4cf9b78977cc9f5b4ceae9c435dedbde6a055a0f8d9e053eaca945715e2a9f",
    "aws-xml-protocol": "4f59176da2522c357b1993e4a890fde529f12f365795ef86269bde4a3984cd0d",
    "checksums-spi": "88b5af85ac2d3c862be8856be4e683ab31932e4a5a3c1c45af864d2671ac7cec",
    "checksums": "94464af4374d08ecf33ca06ed4d03e1615529e547726e26b56abacefbeee7948",
    "crt-core": "2c6aaa17bf9ccbb9d962dded4351e73decb197e3c5519970e0dae17e05d3df62",
    "endpoints-spi": "ef02441bda916959b8341290b49c68cc35538e1ad6f8629b75d8334dc6653e00",
    "http-auth-aws-eventstream": "709107552f302be3fa9e05969a3779f5c0f07fb809e6fa1fa571a6f0c61326dd",
    "http-auth-aws": "c4acb92fdec90bfd9b67bfab8e41b69cd152c03cacc10281a8ab464791856e01",
    "http-auth-spi": "4495463406bb98eb136f2c3f3604ed5f08ec9974ebc3f34f2121b20679f61d5c",
    "http-auth": "3ec933a06e751a05e195eb3589209e23c44e1897263b6fcae34ef4cc63cd4491",
    "http-client-spi": "728be89b2a07b595edb0adee3a2cbbbdd4cb1f4caddde0d08c3979fe2620dedb",
    "identity-spi": "188d73db7d4e2361654bc3c5a1b3eaeb445d0500fb012cc46c5d67975adf97bf",
    "json-utils": "80d67a6bb3e7eb49c7d4b6e4ba4c1463ed7da0192b795158328602dc131c5ecc",
    "metrics-spi": "c2a4ee90a21081317e2e6eba0c414d05d3d518aed2f86b1c1710a7367b450487",
    "netty-nio-client": "b82f8b33e5c85273a47da45ede884d7ccb31c9c2f69e6910a76c5c48fa1275dc",
    "profiles": "0f4ef7ca72ccd80dd49ebeaf7f3ce60a7d7a00da59a91aeeae6e91052bbacbd8",
    "protocol-core": "f2532eca6ba2142fe4821d5decb03c83a3e15dc8bfae2240e7f2efa75f9868b5",
    "regions": "77eae87b34ce96ecdf916a9bc06684dbeafcb6d38ef0513285fa5d5d6d41f5ca",
    "retries-spi": "668638751d059c527ddd41ffa4dcebe36a7c14860ed56776df09b861c14dc7dd",
    "retries": "f99fb2f8c66d7e859955b3542d3af8f9de8f23a21d5e3250f0f2c5f18487e469",
    "s3-transfer-manager": "0eec78870b3d0abc509a847072cf963cb2ae6e360dc6161a9449b3398c470476",
    "s3": "f23532c5223be9b0bfec0d72837ed09ed34dbdf8022818ba145b20076a78b4bc",
    "sdk-core": "fa559a4ce598852f3519c8f3b36250f583b0858a7611eedc4a81997778c617f4",
    "sts": "8d0f7816d3f96e3f00249f5d054d926e939a104bcf9ef57676ee0b16c59684d2",
    "third-party-jackson-core": "32f4252c6c2df8f3a4aff885e6dc77024ad6b4cb48455d07b461ec30c41643ea",
    "utils-lite": "e004806def5e22ec98edc48a133ff3317166255e1ba29d93d129e9fdfa64a7be",
    "utils": "642aeef536a071668f0b772f05f9d21573abf6955e7b6fb5fdb893760cca10e8",
}

#: The same for Hadoop's file system for S3, with the SDK of its build, by the version of Hadoop in pyspark.
_S3: _Table = {
    ("3.5.0",): {
        "org.apache.hadoop:hadoop-aws:{hadoop}": (
            "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa"
        ),
        # S3A reads with this by default.
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1": (
            "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e"
        ),
        "software.amazon.eventstream:eventstream:1.0.1": (
            "0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822"
        ),
        "org.reactivestreams:reactive-streams:1.0.4": (
            "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28"
        ),
        **{f"software.amazon.awssdk:{name}:2.35.4": sha for name, sha in _AWS_SDK_2_35_4.items()},
    },
}


def installed_delta() -> str:
    """Return the version of the installed delta-spark, which is also the version of the Delta JARs.

    :raises EnvironmentNotReady: if it is not installed
    """
    try:
        return version("delta-spark")
    except PackageNotFoundError:
        raise EnvironmentNotReady(
            f"delta-spark is not installed for {sys.executable}.",
            remedy=f"install {_packages(_DELTA, _DELTA_PACKAGES)} into this Python environment.",
        ) from None


def delta_jars() -> JarSet:
    """Return the Delta JARs of the installed delta-spark and pyspark.

    :raises EnvironmentNotReady: if one of them is missing, or the JARs of the pair are not known
    """
    delta, spark = installed_delta(), release(_bundled("spark-core_[0-9.]+"))
    return JarSet("Delta JARs", f"delta-{delta}", _hashes(_DELTA, _DELTA_PACKAGES, delta, spark, _scala()))


def kafka_jars() -> JarSet:
    """Return the JARs of the connector to Kafka for the installed pyspark; see :func:`delta_jars`."""
    spark = _bundled("spark-core_[0-9.]+")
    pins = _hashes(_KAFKA, _KAFKA_PACKAGES, spark, _scala())
    return JarSet("Kafka connector JARs", f"spark-kafka-{spark}", pins)


def s3_jars() -> JarSet:
    """Return the JARs of the file system for S3 for the Hadoop in pyspark; see :func:`delta_jars`."""
    hadoop = _bundled("hadoop-client-api")
    pins = _hashes(_S3, _S3_PACKAGES, hadoop)
    return JarSet("JARs of Hadoop's file system for S3", f"hadoop-aws-{hadoop}", pins)


# The names of the versions in a table's keys: in coordinates -> in messages.
_DELTA_PACKAGES = {"delta": "delta-spark", "spark": "pyspark", "scala": "Scala"}
_KAFKA_PACKAGES = {"spark": "pyspark", "scala": "Scala"}
_S3_PACKAGES = {"hadoop": "Hadoop"}


def _hashes(table: _Table, packages: Mapping[str, str], *versions: str) -> dict[str, str]:
    """Return the hashes (``pins``) of the installed versions."""
    if versions not in table:
        raise EnvironmentNotReady(
            f"The JARs for {_packages([versions], packages)} are not known, or do not exist.",
            remedy=(
                f"install {_packages(table, packages)}; or name JARs of your own (the arguments jars and "
                "packages of a task or a connection)."
            ),
        )
    version_by_name = dict(zip(packages, versions, strict=True))
    return {coordinates.format(**version_by_name): sha256 for coordinates, sha256 in table[versions].items()}


def _packages(versions: Iterable[tuple[str, ...]], packages: Mapping[str, str]) -> str:
    return " or ".join(
        " with ".join(f"{name} {number}" for name, number in zip(packages.values(), numbers, strict=True))
        for numbers in versions
    )


def _bundled(artifact: str) -> str:
    bundled = bundled_version(artifact)
    if bundled is None:
        raise EnvironmentNotReady(
            f"Spark's distribution in {spark_home()} has no JAR {artifact}.",
            remedy="install pyspark again: its folder is damaged or incomplete.",
        )
    return bundled


def _scala() -> str:
    return release(_bundled("scala-library"))


def cache_home() -> Path:
    """Return the cache folder: ``$DELTA_CDC_HOME``, else the user's cache folder as XDG defines it."""
    configured = os.environ.get(HOME_VARIABLE)
    if configured:
        return Path(configured).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "airflow-provider-delta-cdc"


def jar_sets(locations: Iterable[str] = (), *, kafka: bool = False) -> tuple[JarSet, ...]:
    """Return the JARs that a session needs.

    The JARs of Hadoop's file systems for Azure and Google are not included: they come with the cluster, or by
    ``packages``.

    :param locations: URIs and paths that the session reads or writes
    :param kafka: include the connector to Kafka
    :raises EnvironmentNotReady: see :func:`delta_jars`
    """
    s3 = any(is_s3(location) for location in locations)
    return (delta_jars(), *((kafka_jars(),) if kafka else ()), *((s3_jars(),) if s3 else ()))


def needed(locations: Iterable[str] = (), *, kafka: bool = False) -> tuple[Path, ...]:
    """Return the paths of all the JARs of :func:`jar_sets`, and of our log store where a location is on S3.

    :raises EnvironmentNotReady: see there and :meth:`JarSet.jars`
    """
    locations = list(locations)
    resolved = [jar for jar_set in jar_sets(locations, kafka=kafka) for jar in jar_set.jars()]
    log_store = log_store_jar() if any(map(is_s3, locations)) else None
    return (*resolved, *([log_store] if log_store else []))


def class_path(locations: Iterable[str] = (), *, kafka: bool = False) -> str:
    """Return the paths of :func:`needed` as a value of ``spark.driver.extraClassPath``."""
    return os.pathsep.join(map(str, needed(locations, kafka=kafka)))


def _file_name(coordinates: str) -> str:
    group, artifact, version = coordinates.split(":")
    return f"{group}_{artifact}-{version}.jar"


def _ivy_module(pins: Mapping[str, str]) -> str:
    lines = []
    for coordinates in pins:
        group, artifact, version = (quoteattr(part) for part in coordinates.split(":"))
        lines.append(f'    <dependency org={group} name={artifact} rev={version} transitive="false"/>\n')
    return _IVY_MODULE.format(dependencies="".join(lines))


def _last_complaint(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [
        line for line in lines if "Exception" in line or "not found" in line or "error" in line.lower()
    ]
    return (complaints or lines or ["no output"])[-1].rstrip(".")
