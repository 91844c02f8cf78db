"""What a tree looks like: as text, in a notebook, in rich and in treescope."""

from __future__ import annotations

import dataclasses
import html.parser
import subprocess
import sys

import pytest
import torch
from torch.utils import _pytree

from tdfunc import TensorDict, static


def tree():
    td = TensorDict(
        {
            "x": torch.zeros(3, 10),
            "n": {"y": torch.zeros(3, dtype=torch.int8, device="meta"), "mode": "train"},
            "more": TensorDict({"z": torch.zeros(3, 4, 2)}, (3, 4)),
            "e": {},
        },
        3,
    )
    return td.set("w", torch.zeros(3, 10)).tie("x", "w")


WIDE = TensorDict({f"k{i:03}": torch.zeros(1) for i in range(1000)})
ODD = [
    "a.b",
    "new\nline",
    "tab\t",
    "",
    " ",
    "it's",
    '"',
    "<b>&",
    "ünïcode",
    "日本",
    "\x00",
    "a/b",
    "--",
    "[bold]x[/bold]",
    "{}",
    "static",
    "batch_size",
]


def lines(td):
    return repr(td).splitlines()


# --- text ------------------------------------------------------------------------------------------------------------


def test_the_text_tells_path_shape_dtype_device_batch_sizes_ties_and_static_values_in_columns():
    assert repr(tree()) == (
        "TensorDict(batch_size=(3,),\n"
        "  x       (3, 10)    float32\n"
        "  n.y     (3,)       int8 meta\n"
        "  more    batch_size=(3, 4)\n"
        "  more.z  (3, 4, 2)  float32\n"
        "  e       {}\n"
        "  w       (3, 10)    float32    = x\n"
        "  n.mode  static     'train')"
    )


def test_a_subtree_prints_like_a_tree():
    assert repr(tree()["more"]) == "TensorDict(batch_size=(3, 4),\n  z  (3, 4, 2)  float32)"


@pytest.mark.parametrize("td", [WIDE, TensorDict({"n": WIDE, "s": "x"}), TensorDict({f"s{i}": "v" for i in range(90)}), WIDE.set("s", "x")])
def test_the_text_is_one_screen_and_says_how_many_lines_more_there_would_be(td):
    leaves = len(list(td.structure.slots())) + len(td.structure.statics())
    assert len(lines(td)) == 42
    assert lines(td)[-1] == f"  ... {leaves - 40} more)"


def test_leaves_come_before_static_values_when_not_all_fit():
    td = TensorDict({**{f"s{i}": "v" for i in range(40)}, **{f"x{i}": torch.zeros(1) for i in range(39)}})
    assert [line.split()[0] for line in lines(td)[1:41]] == [*(f"x{i}" for i in range(39)), "s0"]
    assert lines(td)[-1] == "  ... 39 more)"


def test_exactly_one_screen_hides_nothing():
    assert "more" not in repr(WIDE.select(*[f"k{i:03}" for i in range(40)]))


def test_hidden_lines_do_not_widen_the_columns():
    assert lines(WIDE.set("a_much_longer_name", torch.zeros(1)))[1] == "  k000  (1,)  float32"


def test_a_key_with_a_dot_and_a_nested_key_are_told_apart():
    texts = {repr(TensorDict({path: torch.zeros(2)})) for path in (("a.b",), ("a", "b"), ("'a.b'",), ("a", "'b'"), ("a'.'b",))}
    assert len(texts) == 5
    assert lines(TensorDict({("a", "b.c"): torch.zeros(2)}))[1] == "  a.'b.c'  (2,)  float32)"


@pytest.mark.parametrize("key", ODD)
def test_any_key_takes_one_line(key):
    td = TensorDict({key: torch.zeros(2), "n": {key: torch.zeros(2)}, "s": {key: "v"}}).tie(key, ("n", key))
    assert len(lines(td)) == 4
    assert all(line.isprintable() for line in lines(td))


def test_odd_keys_are_shown_as_different_texts():
    td = TensorDict({key: torch.zeros(2) for key in ODD})
    assert len({line.split("(2,)")[0] for line in lines(td)[1:]}) == len(ODD)


def test_columns_stand_under_one_another_where_letters_are_wide_or_combine():
    td = TensorDict({"日本": torch.zeros(2), "e\u0301": torch.zeros(2), "abcd": torch.zeros(2)})
    assert lines(td)[1:] == ["  日本  (2,)  float32", "  'e\u0301'   (2,)  float32", "  abcd  (2,)  float32)"]


def test_long_paths_and_values_are_cut_in_the_middle():
    path = tuple(f"layer{i}" for i in range(50))
    td = TensorDict({path: torch.zeros(2), "s": "v" * 500, "t": torch.zeros(2)})
    assert max(map(len, lines(td))) < 140
    assert lines(td)[1].startswith("  layer0.layer1.")
    assert " ... r46.layer47.layer48.layer49  (2,)" in lines(td)[1]
    assert lines(td)[-1].endswith("vvv')")


@dataclasses.dataclass(frozen=True)
class Odd:
    text: str = "a"

    def __repr__(self):
        return f"Odd(\n{self.text}\n)"


def test_a_static_value_takes_one_line_whatever_its_repr():
    assert lines(TensorDict(s=Odd(), n=static(5)))[1:] == ["  s  static  Odd( a )", "  n  static  5)"]


@pytest.mark.parametrize("leaf", [1, None, "x\ny", (2, 3), object(), [1], float("nan")], ids=lambda leaf: type(leaf).__name__)
def test_leaves_that_are_no_tensors_print_as_their_type(leaf):
    td = _pytree.tree_map(lambda _: leaf, tree())
    for text in (repr(td), td._repr_html_(), str(dict(list(td.__rich_repr__())[1:]))):
        assert type(leaf).__name__ in text
    assert len(lines(td)) == 8


def test_in_vmap_the_text_tells_the_sizes_of_a_row():
    seen = []
    torch.vmap(lambda row: seen.append((repr(row), row._repr_html_(), list(row.__rich_repr__())[0])) or row)(tree().exclude(("n", "y")))
    text, page, rich = seen[0]
    assert text.splitlines()[:3] == ["TensorDict(batch_size=(),", "  x       (10,)   float32", "  more    batch_size=(4,)"]
    assert "(10,) float32" in page
    assert rich == ("batch_size", ())


def test_compiled_the_texts_are_those_of_eager():
    def all_texts(td):
        return td["x"] + 1, repr(td), f"{td}", td._repr_html_()

    td = tree()
    assert torch.compile(all_texts, fullgraph=True, backend="eager")(td)[1:] == all_texts(td)[1:]


# --- HTML ------------------------------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """The tags of a text, each closed in order, and the words of each summary and item."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], set(), []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)
        assert dict(attrs).keys() <= {"open"}
        if tag in ("summary", "li"):
            self.words.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words[-1] += data


def test_html_is_a_tree_of_details_that_tells_what_the_text_tells():
    page = Page(tree()._repr_html_())
    assert page.words == [
        "TensorDict batch_size=(3,)",
        *("x: (3, 10) float32", "", "n batch_size=(3,)", "y: (3,) int8 meta", "mode: 'train'"),
        *("", "more batch_size=(3, 4)", "z: (3, 4, 2) float32", "", "e batch_size=(3,)", "w: (3, 10) float32 = x"),
    ]


def test_html_needs_no_script_and_no_style():
    assert Page(tree()._repr_html_()).tags == {"details", "summary", "ul", "li", "b", "code"}


def test_html_opens_the_root_only():
    text = tree()._repr_html_()
    assert text.startswith("<details open>")
    assert text.count("<details open>") == 1
    assert text.count("<details>") == 3


@pytest.mark.parametrize("key", [*ODD, "<script>alert(1)</script>", "</details>"])
def test_html_escapes_keys_values_and_ties(key):
    td = TensorDict({key: torch.zeros(2), "n": {key: torch.zeros(2), f"{key}s": key}}).tie(key, ("n", key))
    page = Page(td._repr_html_())
    assert page.tags == {"details", "summary", "ul", "li", "b", "code"}
    assert sum(repr(key) in word or key in word for word in page.words) >= 3


@pytest.mark.parametrize("td", [WIDE, TensorDict({f"n{i}": {f"x{j}": torch.zeros(1) for j in range(30)} for i in range(30)})])
def test_html_is_bounded_and_says_what_it_leaves_out(td):
    page = Page(td._repr_html_())
    assert len(page.words) <= 450
    assert any("more" in word for word in page.words)


def test_html_of_a_wide_tree_counts_what_it_leaves_out():
    assert Page(WIDE._repr_html_()).words[-1] == "... 800 more"


# --- rich and treescope ----------------------------------------------------------------------------------------------


def test_rich_is_given_the_batch_size_and_a_pair_for_each_line():
    size, *rows = tree().__rich_repr__()
    assert size == ("batch_size", (3,))
    assert [(key, repr(value)) for key, value in rows] == [
        ("x", "(3, 10) float32"),
        ("n.y", "(3,) int8 meta"),
        ("more", "batch_size=(3, 4)"),
        ("more.z", "(3, 4, 2) float32"),
        ("e", "{}"),
        ("w", "(3, 10) float32 = x"),
        ("n.mode", "'train'"),
    ]


def test_rich_is_given_no_more_than_a_screen():
    rows = list(WIDE.__rich_repr__())
    assert len(rows) == 42
    assert repr(rows[-1][0]) == "... 960 more"


def test_rich_prints_it():
    pretty = pytest.importorskip("rich.pretty")
    assert pretty.pretty_repr(TensorDict({"x": torch.zeros(3), "n": {"s": "v"}}, 3)) == "TensorDict(batch_size=(3,), x=(3,) float32, n.s='v')"
    assert len(pretty.pretty_repr(WIDE, max_width=40).splitlines()) == 44
    assert "(3, 10) float32 = x" in pretty.pretty_repr({"in a dict": tree()}, max_width=60)


def test_treescope_draws_it():
    treescope = pytest.importorskip("treescope")
    text = treescope.render_to_text(tree())
    for told in ("'x': (3, 10) float32", "'w': (3, 10) float32 = x", "'mode': 'train'", "# batch_size=(3,)", "# batch_size=(3, 4)", "int8 meta"):
        assert told in text
    assert "TensorDict({" in text
    assert "(3, 10) float32" in treescope.render_to_html(tree(), compressed=False)


def test_treescope_draws_odd_keys_and_leaves_that_are_no_tensors():
    treescope = pytest.importorskip("treescope")
    odd = _pytree.tree_map(lambda _: None, TensorDict({key: torch.zeros(2) for key in ODD}))
    text = treescope.render_to_text(odd)
    assert all(f"{key!r}: NoneType" in text for key in ODD)


def test_displays_import_no_library():
    code = (
        "import sys, torch, tdfunc\n"
        "td = tdfunc.TensorDict(x=torch.zeros(2))\n"
        "repr(td), td._repr_html_(), list(td.__rich_repr__())\n"
        "loaded = [m for m in ('rich', 'treescope', 'IPython', 'tensordict', 'pandas') if m in sys.modules]\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
