"""A headless Chromium, where there is one."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome

#: How browser and driver are called, depending on the distribution.
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_DRIVERS = ("chromedriver", "chromium-chromedriver")


def missing() -> str:
    """Return what is missing for a browser, or nothing."""
    lacking = [names[0] for names in (_BROWSERS, _DRIVERS) if _found(names) is None]
    return f"{' and '.join(lacking)} not found on PATH (tools/chromium.sh installs them)" if lacking else ""


@contextmanager
def chromium(profile: Path, *, width: int = 1280, height: int = 1300) -> Iterator[Chrome]:
    """Start a browser with a profile of its own; it ends with the context.

    :param profile: folder of the profile
    """
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = _found(_BROWSERS) or ""
    arguments = ["headless=new", "disable-gpu", "disable-dev-shm-usage", "no-first-run", "lang=en-US"]
    if os.getuid() == 0:
        # As root it has no sandbox, and what it shows here is our own.
        arguments.append("no-sandbox")
    for argument in (*arguments, f"window-size={width},{height}", f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    browser = Chrome(options=options, service=Service(_found(_DRIVERS)))
    try:
        yield browser
    finally:
        browser.quit()


def _found(names: tuple[str, ...]) -> str | None:
    return next((path for path in map(shutil.which, names) if path), None)
