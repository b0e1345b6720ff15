"""Settings of Sphinx for the site. ``python -m tools.site`` prepares the pages and calls Sphinx."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

_ROOT = Path(os.environ.get("DELTA_CDC_CHECKOUT", Path(__file__).parent.parent))
_URL = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]

project = "airflow-provider-delta-cdc"
author = "the project's contributors"
release = (_ROOT / "spark_jobs/delta_cdc/_version.py").read_text(encoding="utf-8").rsplit('"', 2)[1]
version = release

extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
root_doc = "index"
nitpicky = True
# Otherwise, an option such as --key in a sentence gets a dash instead of its two hyphens.
smartquotes = False

# Anchors as GitHub makes them, so that a link works in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# A prompt is shown, and not copied; neither is what a command prints.
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"

html_theme = "pydata_sphinx_theme"
html_title = "Delta CDC"
html_show_sourcelink = False
html_copy_source = False
html_static_path: list[str] = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "icon_links": [{"name": "Source", "url": _URL, "icon": "fa-solid fa-code-branch"}],
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_prev_next": True,
    "navigation_depth": 2,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "secondary_sidebar_items": ["page-toc"],
}
# These pages are alone in their section.
html_sidebars = {"quickstart": [], "index": []}
html_context = {"default_mode": "auto"}
# The theme ends it with a full stop.
project_copyright = f"{author}. Version {release}"
pygments_style = "default"
