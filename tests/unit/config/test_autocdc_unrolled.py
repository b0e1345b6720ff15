"""Loops, conditions and functions of AUTO CDC code mean what Python makes of them, or are refused."""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.config import Code, imported
from delta_cdc.core.errors import InvalidConfiguration
from tests.support.random_logs import seeds
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = "from pyspark import pipelines as dp\n"
#: Pipeline -> (source, keys, type)
Flows = dict[str, tuple[str, tuple[str, ...], int]]
Read = Callable[[str], Flows]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that gives the flows of the code as this project reads them."""

    def flows(text: str) -> Flows:
        path = tmp_path / "code.py"
        path.write_text(text)
        found: dict[str, Any] = imported(path, Code())[0]["pipelines"]
        return {
            one["target"]: (one["source"], tuple(one["keys"]), one.get("stored_as_scd_type", 1))
            for one in found.values()
        }

    return flows


def run(text: str) -> Flows:
    """Return the flows of the code as Python runs it: the oracle. Views are called after the module."""
    found: Flows = {}
    views: dict[str, Any] = {}

    def create_auto_cdc_flow(
        target: str, source: str, keys: list[str], sequence_by: str, stored_as_scd_type: int = 1
    ) -> None:
        assert sequence_by == "seq"
        found[target] = (source, tuple(keys), stored_as_scd_type)

    def view(name: str) -> Any:
        def defined(function: Any) -> None:
            views[name] = function

        return defined

    module = types.SimpleNamespace(
        create_auto_cdc_flow=create_auto_cdc_flow, view=view, create_streaming_table=lambda name: None
    )
    spark = types.SimpleNamespace(readStream=types.SimpleNamespace(table=lambda name: name))
    exec(text.removeprefix(_HEAD), {"dp": module, "spark": spark})
    sources = {name: function() for name, function in views.items()}
    return {
        target: (sources.get(source, source), keys, kind) for target, (source, keys, kind) in found.items()
    }


FOLLOWED = {
    "a list": """
for t in ['a', 'b']:
    dp.create_auto_cdc_flow(target=f'{t}_t', source=f's.{t}', keys=['id'], sequence_by='seq')
""",
    "a mapping": """
T = {'a': ['id'], 'b': ['x', 'y']}
for t, k in T.items():
    dp.create_auto_cdc_flow(target=t, source=t + '_s', keys=k, sequence_by='seq')
""",
    "mappings": """
T = [{'n': 'a', 'k': ['id']}, {'n': 'b', 'k': ['x'], 'scd': 2}, {'n': 'c', 'off': True}]
for c in T:
    if c.get('off'):
        continue
    dp.create_streaming_table(c['n'])
    dp.create_auto_cdc_flow(target=c['n'], source=f"s.{c['n']}", keys=c['k'],
        sequence_by='seq', stored_as_scd_type=c.get('scd', 1))
""",
    "a function": """
def make(name, keys=('id',), *, kind=1):
    'Text.'
    view = f'{name}_view'
    @dp.view(name=view)
    def changes():
        return spark.readStream.table(f'bronze.{name}')
    dp.create_streaming_table(name=name)
    dp.create_auto_cdc_flow(name, view, keys, 'seq', stored_as_scd_type=kind)
for one in ('a', 'b'):
    make(one)
make('c', ['x'], kind=2)
""",
    "a function that returns a name": """
def view_of(t):
    @dp.view(name=t + '_v')
    def v():
        return spark.readStream.table('s.' + t)
    return t + '_v'
def make(t):
    v = view_of(t)
    dp.create_auto_cdc_flow(t, v, ['id'], 'seq')
for t in ['a', 'b']:
    make(t)
""",
    "a default keeps the value": """
for t in ['a', 'b']:
    @dp.view(name=t + '_v')
    def v(t=t):
        return spark.readStream.table(f's.{t}')
    dp.create_auto_cdc_flow(t, t + '_v', ['id'], 'seq')
""",
    "a flow that is returned": """
import sys
sys.path.append('x')
ALL = []
ALL.append('y')
def make(t):
    return dp.create_auto_cdc_flow(t, 's', ['id'], 'seq')
def outer(t):
    return make(t)
for t in ['a', 'b']:
    outer(t)
make('c')
""",
    "conditions": """
C = {'target': 'a', 'source': 's', 'keys': ['id'], 'sequence_by': 'seq'}
dp.create_auto_cdc_flow(**C)
for i, n in enumerate(['b', 'c', 'd']):
    if i == 1 and n in ('c', 'd') or not n:
        dp.create_auto_cdc_flow(n.upper(), 's', ['id'], 'seq')
        break
    else:
        dp.create_auto_cdc_flow(n, 's', ['id'], 'seq')
""",
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_loops_and_functions_are_followed(read: Read, name: str) -> None:
    code = FOLLOWED[name]
    assert len(run(code)) > 1
    assert read(_HEAD + code) == run(code)


_LETTERS = list("abcdefghij") * 11
REFUSED = [
    ("for t in tables(): {flow}", "py:2:10: The loop over tables() is no loop over literals."),
    ("for t in ['a']:\n  if x:\n    {flow}", "py:3:6: Whether x holds is not known"),
    ("for t in ['a']:\n  if x: continue\n  {flow}", "py:3:6: Whether x holds is not known"),
    ("T = ['a']\nT.append('b')\nfor t in T: {flow}", "py:4:10: The loop over T is no loop over"),
    ("T = {'a': {}}\nT['a']['x'] = 1\nfor t in T: {flow}", "py:4:10: The loop over T is no loop over"),
    ("for t in [{'n': 'a'}]:\n  t['n'] = 'b'\n  {flow}", "py:3:3: t['n'] = 'b' changes a value in"),
    ("def make(t):\n  make(t)\n  {flow}\nmake('a')", "py:3:3: The calls of make are nested too"),
    ("def make(t):\n  {flow}\nmake(*['a'])", "py:4:1: make(*['a']) does not fit the parameters of make."),
    ("def make(t, u):\n  {flow}\nmake('a')", "py:4:1: make('a') does not fit the parameters of make."),
    ("for a, b in [('a',)]: {flow}", "py:2:5: (a, b) does not fit ('a',)."),
    ("def make(t):\n  {flow}\nwhile x: make('a')", "py:3:3: create_auto_cdc_flow is in a loop, a"),
    ("def make(t):\n  {flow}", "py:3:3: create_auto_cdc_flow is in a loop, a condition, a function"),
    ("def make(t):\n  {flow}\nmake('a')\nmap(make, ['b'])", "py:3:3: create_auto_cdc_flow is in a loop"),
    ("for t in ['a']:\n  with x() as t: pass\n  {flow}", "t of line 3 is no literal."),
    ("for t in ['a' for x in y]: {flow}", "py:2:10: The loop over ['a' for x in y] is no loop"),
    (
        """for t in ['a', 'b']:
    @dp.view(name=t + '_v')
    def v():
        return spark.readStream.table(t)
    dp.create_auto_cdc_flow(t, t + '_v', ['id'], 'seq')""",
        "v reads t when the loop is over, so it has only the last value.",
    ),
    ("for _ in [make('b')]: pass\ndef make(t):\n  {flow}\nmake('a')", "What [make('b')] makes is not"),
    ("def make(t):\n  {flow}\ndef two(t): pass\nmake('a')\ntwo(make('b'))", "create_auto_cdc_flow is in a"),
    ("def make(t):\n  {flow}\ndef two(t): make(t)\ntwo('a')\ntwo(make('b'))", "What make('b') makes is not"),
    (
        "def make(t):\n  {flow}\ndef two(t):\n  def make(t): pass\n  make(t)\nmake('a')\ntwo('b')",
        "two has a make of",
    ),
    (
        "T = [{'n': 'a'}]\nfor t in T: t['s'] = 2\nfor t in T:\n  {flow}",
        "The loop over T is no loop over literals",
    ),
    ("T = [['a']]\ndef fix(c): c.append('b')\nfix(T[0])\nfor t in T: {flow}", "The loop over T is no loop"),
    ("T = {'k': ['a']}\nk = T['k']\nk += ['b']\nfor t in T['k']: {flow}", "The loop over T['k'] is no loop"),
    ("B = ['a']\nO = B\nO.append('b')\nfor t in B: {flow}", "The loop over B is no loop over literals"),
    ("for t in ['a', 'b']:\n  if t == 'b': raise SystemExit\n  {flow}", "Where raise SystemExit ends"),
    (f"for a in {_LETTERS}:\n  for t in {_LETTERS}: {{flow}}", "The code makes more than 10,000 steps."),
]


@pytest.mark.parametrize(("code", "problem"), REFUSED, ids=[one[1][:50] for one in REFUSED])
def test_what_only_a_run_would_show_is_refused(read: Read, code: str, problem: str) -> None:
    text = code.replace("{flow}", "dp.create_auto_cdc_flow(t, 's', ['id'], 'seq')")
    with pytest.raises(InvalidConfiguration) as caught:
        read(f"{_HEAD}{text}\n")
    assert problem in str(caught.value)


class _Programs:
    """Draws programs in the manner of the field: lists of tables, functions, views, conditions."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.number = draw, 0

    def text(self) -> str:
        lines = ["K = {'a': ['i', 'j'], 'b': ['k'], 'z': 'id'}", "N = ['a', 'b', 'c']", "S = 's'"]
        lines += ["def f(t, k=['id'], s='q'):", *self.body(["t", "s"], "function")]
        lines += ["def r(t):", f"    return {self.draw.choice(['f(t)', self.flow(['t'])[0], 't'])}"]
        lines += self.body([], "")
        return (
            _HEAD
            + "\n".join([*lines, "f('x')", "r('x2')", "for t in ['y']:", f"    {self.flow(['t'])[0]}"])
            + "\n"
        )

    def body(self, names: list[str], inside: str, depth: int = 0) -> list[str]:
        """Return statements.

        :param names: the names that have values here
        :param inside: "function", "loop", or "" at module level
        """
        names, lines = list(names), list[str]()
        for _ in range(self.draw.randint(1, 3)):
            kinds = (
                ["flow", "loop", "if_", "view"] + ["assign", "end"] * bool(inside) + ["call"] * (inside == "")
            )
            lines += getattr(self, self.draw.choice(kinds if depth < 3 else ["flow"]))(names, inside, depth)
        return [f"    {line}" for line in lines] if inside else lines

    def loop(self, names: list[str], inside: str, depth: int) -> list[str]:
        name = self.draw.choice("tuv")
        items = self.draw.choice(["N", "['m', 'n']", "('o',)", "K", "[S, 'r']", "[]", "K['a']"])
        within = self.body([*names, name], "loop", depth + 1)
        call = [f"    f({self.value([*names, name])})"] if self.draw.random() < 0.4 and inside == "" else []
        tail = ["else:", "    pass", *self.body(names, "loop", 3)] if self.draw.random() < 0.1 else []
        return [f"for {name} in {items}:", *call, *within, *tail]

    def end(self, names: list[str], inside: str, depth: int) -> list[str]:
        how = {"function": ["return"], "loop": ["continue", "break"]}[inside]
        return [f"if {self.test(names)}:", f"    {self.draw.choice(how)}"]

    def test(self, names: list[str]) -> str:
        tests = ["{} == 'a'", "{} != 'b'", "{} in N", "not {}", "{} in ('m', S)", "{} == 'a' or {} == S"]
        return self.draw.choice(tests).replace("{}", self.draw.choice([*names, "S"]))

    def if_(self, names: list[str], inside: str, depth: int) -> list[str]:
        within = self.body(names, inside or "loop", 3)
        more = ["else:", *self.body(names, inside or "loop", 3)] if self.draw.random() < 0.3 else []
        return [f"if {self.test(names)}:", *within, *more]

    def assign(self, names: list[str], inside: str, depth: int) -> list[str]:
        name = self.draw.choice("tuw")
        line = f"{name} = {self.value(names)}"
        names.append(name)
        return [line]

    def call(self, names: list[str], inside: str, depth: int) -> list[str]:
        more = self.draw.choice(["", ", ['x']", ", s='p'", ", K.get('a'), S"])
        return [self.draw.choice([f"f({self.value(names)}{more})", f"r({self.value(names)})"])]

    def view(self, names: list[str], inside: str, depth: int) -> list[str]:
        self.number += 1
        name, own = f"{self.value(names)} + '_{self.number}'", self.draw.choice([*names, "S"])
        given = f"{own}={own}" if self.draw.random() < 0.5 else ""
        return [
            f"@dp.view(name={name})",
            f"def g({given}):",
            f"    return spark.readStream.table(f'x.{{{own}}}')",
            f"dp.create_auto_cdc_flow({self.value(names)} + 't{self.number}', {name}, ['id'], 'seq')",
        ]

    def flow(self, names: list[str], inside: str = "", depth: int = 0) -> list[str]:
        self.number += 1
        keys, kind = self.draw.choice(["['id']", "K['a']", "K.get('q', ['y'])"]), self.draw.choice([1, 2])
        target, source = f"{self.value(names)} + '{self.number}'", f"'s.' + {self.value(names)}"
        return [f"dp.create_auto_cdc_flow({target}, {source}, {keys}, 'seq', stored_as_scd_type={kind})"]

    def value(self, names: list[str]) -> str:
        known = self.draw.choice([*names * 2, "S", "'lit'", "N[0]", "K['z']"])
        quoted = known.replace("'", '"')
        return self.draw.choice(["{}", "f'{{{}}}_f'", "{}.upper()", "({} + 'p')"]).format(
            quoted if "'" in known else known
        )


@pytest.mark.parametrize("seed", slow_but(seeds(3), *seeds(1)))
def test_drawn_programs_mean_what_python_makes_of_them(read: Read, seed: int) -> None:
    programs = _Programs(random.Random(seed))
    followed = 0
    for _ in range(100):
        text = programs.text()
        try:
            expected = run(text)
        except (NameError, UnboundLocalError):
            continue
        try:
            found = read(text)
        except InvalidConfiguration:
            # Most programs write a target twice.
            continue
        assert found == expected, text
        followed += len(expected) > 1
    assert followed > 10
