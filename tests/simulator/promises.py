"""What each store promises: which of its faults a schedule may draw.

A store keeps its own promise in the simulator, and breaks everything that it does not promise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """What a store, with the log store that writes to it, promises.

    :param scheme: of the locations; ``file`` is a disk
    :param safe: a commit file is never created twice; otherwise the writer looks first, and replaces then
    :param lag: how many steps pass until readers of the plain files see a new commit
    :param torn: a reader may see the beginning of a commit file while it is written: at the latest, the file
        is whole when the next version is committed. No store that Delta supports does this
    :param stale: a listing may lack the newest objects
    """

    scheme: str
    safe: bool = True
    lag: int = 0
    torn: bool = False
    stale: bool = False


#: HDFS is missing: the log's reader has no client for it, and refuses its locations.
PROMISES = {
    "gs": Promise("gs"),
    "abfss": Promise("abfss"),
    "s3, conditional writes": Promise("s3"),
    "s3, one driver's store": Promise("s3", safe=False),
    "s3, DynamoDB": Promise("s3", lag=40),
    "s3, listings that lag": Promise("s3", stale=True),
    "disk, our log store": Promise("file"),
    "disk, Delta's log store": Promise("file", safe=False),
    "disk, files that are seen while they are written": Promise("file", torn=True),
}
