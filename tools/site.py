"""Build the documentation site from ``docs/``: ``python -m tools.site``; ``make docs`` calls it.

The pages in ``docs/`` are plain Markdown that GitHub shows as well. This module copies them to ``build/docs``
and adds what only a site has:

- navigation: the pages that an index page links to, in this order, are its children;
- a page for each row of a table that is marked ``<!-- a page for each row: FOLDER -->`` (errors, options), to
  which links such as ``[`keys`](options.md)`` lead;
- the project's address in links that leave ``docs/``, such as ``../dags/orders_current.py``.

``--words`` prints how many words the pages have, and builds nothing.

Then Sphinx builds the site. A warning is an error: a link to a page or a heading that does not exist, a page
that no index names. With ``--external`` the links to other sites are fetched as well.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS, BUILD = ROOT / "docs", ROOT / "build" / "docs"
SOURCE, SITE = BUILD / "source", BUILD / "html"

_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
_ROWS = re.compile(r"<!-- a page for each row: (?P<folder>\w+) -->")
_NAMED = re.compile(r"\[`(?P<name>[\w.]+)`\]\((?P<page>[^)\s#]+)\)")
_ROW = re.compile(r"^\| `(?P<name>[\w.]+)` \| (?P<cells>.+) \|$")


def address() -> str:
    """Return the address of the project's files, as GitHub has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return f"{project['urls']['Source'].rstrip('/')}/blob/main"


def pages(folder: Path = DOCS) -> dict[str, str]:
    """Return the pages of a folder by their path."""
    return {
        p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8") for p in sorted(folder.rglob("*.md"))
    }


def words(folder: Path = DOCS) -> dict[str, int]:
    """Return the number of words of each folder, and of all pages (``total``).

    A word has a letter or a digit: ``wc -w`` also counts the bars of tables, a seventh of what it counts.
    """
    counted: Counter[str] = Counter()
    for path, text in pages(folder).items():
        counted[posixpath.dirname(path) or "."] += len(re.findall(r"\S*[^\W_]\S*", text))
    return {**dict(counted.most_common()), "total": counted.total()}


def outward(path: str, text: str, base: str) -> str:
    """Return a page in which links that leave ``docs/`` are addresses.

    :param path: the page's, below ``docs/``
    :param base: address of the checkout's root
    """

    def one(found: re.Match[str]) -> str:
        link = found[2]
        if "://" in link or link.startswith(("#", "mailto:")):
            return found[0]
        whole = posixpath.normpath(posixpath.join("docs", posixpath.dirname(path), link))
        inside = whole.startswith("docs/") and not whole.endswith((".py", ".json"))
        return found[0] if inside else f"{found[1]}({base}/{whole})"

    return _outside_of_code(text, lambda part: _LINK.sub(one, part))


def _outside_of_code(text: str, change: object) -> str:
    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))  # type: ignore[operator]


def row_pages(path: str, text: str) -> tuple[str, dict[str, str]]:
    """Return a page with links to the pages of its rows, and these pages by path.

    A page without the mark comes back as it is. The title is the first cell; each other cell stands below the
    head of its column.
    """
    mark = _ROWS.search(text)
    if mark is None:
        return text, {}
    made: dict[str, str] = {}
    heads: list[str] = []
    lines = text.splitlines()
    section = title = text.partition("\n")[0].removeprefix("# ")
    parent = posixpath.basename(path)
    for at, line in enumerate(lines):
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if line.startswith("|--"):
            heads = [head.strip() for head in lines[at - 1].strip("|").split("|")][1:]
        row = _ROW.match(line)
        if row is None or not heads:
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row["cells"])]
        where = title if section == title else f"{title}: {section}"
        parts = [f"# {row['name']}\n", f"[{where}](../{parent})\n"]
        for head, cell in zip(heads, cells, strict=True):
            if not cell:
                continue
            shown = _LINK.sub(_one_up, cell.replace("\\|", "|"))
            parts.append(f"**{head[:1].upper()}{head[1:]}:** {shown}\n")
        made[posixpath.join(posixpath.dirname(path), mark["folder"], f"{row['name']}.md")] = "\n".join(parts)
        lines[at] = line.replace(
            f"| `{row['name']}` |", f"| [`{row['name']}`]({mark['folder']}/{row['name']}.md) |", 1
        )
    return "\n".join([*lines, ""]), made


def _one_up(found: re.Match[str]) -> str:
    link = found[2]
    return found[0] if "://" in link else f"{found[1]}({posixpath.normpath(posixpath.join('..', link))})"


def to_rows(path: str, text: str, rows: dict[str, dict[str, str]]) -> str:
    """Return a page whose links with the name of a row lead to the page of this row.

    :param path: the page's, below ``docs/``
    :param rows: by the path of a page with a marked table: the path of each row's page by the row's name
    """
    here = posixpath.dirname(path)

    def one(found: re.Match[str]) -> str:
        made = rows.get(posixpath.normpath(posixpath.join(here, found["page"])), {})
        if found["name"] not in made:
            return found[0]
        return f"[`{found['name']}`]({posixpath.relpath(made[found['name']], here or '.')})"

    return _outside_of_code(text, lambda part: _NAMED.sub(one, part))


def children(path: str, text: str, known: set[str]) -> list[str]:
    """Return the pages that become the children of an index page: those that it links to, as they come.

    :param known: paths of pages that have a place already
    :return: of the outermost index pages beside it and the indexes of folders; of another one pages of its
        folder, and pages that lie in no folder
    """
    found: dict[str, None] = {}
    here = posixpath.dirname(path)
    for match in _LINK.finditer(text):
        link = match[2].partition("#")[0]
        if "://" in link or not link.endswith(".md"):
            continue
        whole = posixpath.normpath(posixpath.join(here, link))
        folder, name = posixpath.split(whole)
        inside = folder in ("", here) if here else not folder or name == "index.md"
        nested = bool(here) and folder.startswith(here + "/") and name == "index.md"
        if (inside or nested) and whole not in known:
            found[whole] = None
    return list(found)


def toctree(path: str, names: list[str]) -> str:
    """Return the directive that makes pages the children of a page."""
    here = posixpath.dirname(path) or "."
    entries = [posixpath.relpath(name, here).removesuffix(".md") for name in names]
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(entries) + "\n```\n"


def prepared() -> dict[str, str]:
    """Return what Sphinx gets: each page's text by its path."""
    base = address()
    made = pages()
    trees: dict[str, list[str]] = {}
    named: dict[str, dict[str, str]] = {}
    for path, text in list(made.items()):
        made[path], rows = row_pages(path, text)
        if rows:
            made |= rows
            trees[path] = list(rows)
            named[path] = {posixpath.basename(row).removesuffix(".md"): row for row in rows}
    known = {"index.md", *(name for names in trees.values() for name in names)}
    # The outermost first: a page belongs to the first index that names it.
    for path in sorted((p for p in made if posixpath.basename(p) == "index.md"), key=lambda p: p.count("/")):
        own = children(path, made[path], known)
        trees[path] = [*trees.get(path, []), *own]
        known |= set(own)
    for path, names in trees.items():
        if names:
            made[path] += toctree(path, names)
    return {path: outward(path, to_rows(path, text, named), base) for path, text in made.items()}


def write() -> None:
    """Write the prepared pages, pictures and settings into ``build/docs/source``."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for path, text in prepared().items():
        target = SOURCE / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for file in DOCS.rglob("*"):
        if file.suffix in (".png", ".svg", ".css"):
            target = SOURCE / file.relative_to(DOCS)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    shutil.copyfile(DOCS / "conf.py", SOURCE / "conf.py")


def main(arguments: list[str]) -> int:
    """Build the site; return Sphinx's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--external", action="store_true", help="fetch the links to other sites, too")
    parser.add_argument(
        "--words", action="store_true", help="count the words of the pages, and build nothing"
    )
    given = parser.parse_args(arguments)
    if given.words:
        print("\n".join(f"{count:7,} {name}" for name, count in words().items()))
        return 0
    write()
    builder, output = ("linkcheck", BUILD / "links") if given.external else ("html", SITE)
    command = [sys.executable, "-m", "sphinx", "-b", builder, "-W", "--keep-going", "-q", "-j", "auto"]
    environment = {**os.environ, "DELTA_CDC_CHECKOUT": str(ROOT)}
    code = subprocess.run([*command, str(SOURCE), str(output)], check=False, env=environment).returncode
    if code == 0 and not given.external:
        print(f"docs: {SITE / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
