"""A headless Chromium, where there is one."""

from __future__ import annotations

import os
import shutil
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

#: How browser and driver are called, depending on the distribution.
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_DRIVERS = ("chromedriver", "chromium-chromedriver")
#: Seconds after which something must be wrong.
_PATIENCE = 300


def missing() -> str:
    """Return what is missing for a browser, or nothing."""
    lacking = [names[0] for names in (_BROWSERS, _DRIVERS) if _found(names) is None]
    return f"{' and '.join(lacking)} not found on PATH (tools/chromium.sh installs them)" if lacking else ""


def require(what: str) -> None:
    """Skip a test without a browser, with a warning that the end of the run shows in full; fail in CI.

    :param what: what is not tested then
    """
    lacking = missing()
    if lacking:
        assert not os.environ.get("CI"), lacking
        warnings.warn(f"NOT TESTED: {what} in a browser: {lacking}", stacklevel=2)
        pytest.skip(lacking)


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
    # Even a look at an element is a script, and its 30 seconds are few on a busy machine.
    browser.set_script_timeout(_PATIENCE)
    try:
        yield browser
    finally:
        browser.quit()


class Window:
    """What a test does with Airflow's pages.

    :param chrome: the browser
    :param url: where the API server is
    """

    def __init__(self, chrome: Chrome, url: str) -> None:
        self.chrome = chrome
        self.url = url

    def log_in(self, user: str, password: str) -> None:
        """Log in, and wait for the home page."""
        self.open("/")
        self.see("[name=username]").send_keys(user)
        self.see("[name=password]").send_keys(password)
        self.see("button[type=submit]").click()
        self.see("nav, [href$='/dags']")

    def open(self, path: str) -> None:
        """Load a page."""
        self.chrome.get(f"{self.url}{path}")

    def see(self, selector: str) -> WebElement:
        """Return an element when it can be used.

        :param selector: CSS, or XPath where it begins with a slash
        """
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.common.by import By
        from selenium.webdriver.support.expected_conditions import element_to_be_clickable
        from selenium.webdriver.support.wait import WebDriverWait

        by = By.XPATH if selector.startswith("/") else By.CSS_SELECTOR
        # The UI may replace an element while it is looked at.
        wait = WebDriverWait(self.chrome, _PATIENCE, ignored_exceptions=[StaleElementReferenceException])
        return wait.until(element_to_be_clickable((by, selector)))


def _found(names: tuple[str, ...]) -> str | None:
    return next((path for path in map(shutil.which, names) if path), None)
