"""Structures that nobody holds are collected; memos and long chains of sets stay bounded."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import torch

import tdfunc
from tdfunc import TensorDict
from tdfunc.structure import clear_caches, empty

ONE = torch.zeros(())


def alive(structure):
    """Count the structures that grow from this one."""
    found = 0
    stack = [structure]
    while stack:
        node = stack.pop()
        found += 1
        stack += [child for link in list(node._links.values()) if (child := link()) is not None]
    return found


def test_a_structure_that_nobody_holds_dies_after_clear_caches():
    td = TensorDict({"only here": ONE, "x": {"y": ONE, "s": "static"}}).tie("only here", ("x", "y")).set("kept only here", ONE)
    refs = [weakref.ref(s) for s in (td.structure, td["x"].structure, (td + 1).select("kept only here").structure, td.structure.parent)]
    assert all(ref() is not None for ref in refs)
    del td
    clear_caches()
    gc.collect()
    assert [ref() for ref in refs] == [None] * 4


def test_a_structure_that_is_held_outlives_clear_caches_and_stays_the_one():
    td = TensorDict({"kept": ONE, "by": {"me": ONE}})
    clear_caches()
    gc.collect()
    assert TensorDict({"kept": ONE, "by": {"me": ONE}}).structure is td.structure
    assert TensorDict({"kept": ONE}).set(("by", "me"), ONE).structure is td.structure


def test_twenty_thousand_different_structures_leave_a_bounded_number():
    clear_caches()
    before = alive(empty())
    for n in range(20_000):
        TensorDict({f"n{n}": ONE})
    gc.collect()
    assert alive(empty()) - before <= 4096 + 64
    clear_caches()
    gc.collect()
    assert alive(empty()) - before <= 64


def test_different_structures_by_all_transitions_leave_a_bounded_number():
    clear_caches()
    before = alive(empty())
    for n in range(5_000):
        td = TensorDict({"a": ONE, "b": {"c": ONE}}).set(f"n{n}", ONE).rename_key("a", f"r{n}").tie(f"n{n}", f"r{n}").exclude(("b", "c"))
        assert td.ties == (((f"r{n}",), (f"n{n}",)),)
    gc.collect()
    assert alive(empty()) - before <= 60_000
    clear_caches()
    gc.collect()
    assert alive(empty()) - before <= 64


def test_values_of_a_changing_static_leave_a_bounded_number():
    clear_caches()
    before = alive(empty())
    td = TensorDict({"a": ONE, "step": tdfunc.static(0)})
    for n in range(10_000):
        td = td.set("step", tdfunc.static(n))
    gc.collect()
    assert td["step"] == 9_999
    assert alive(empty()) - before <= 2 * 4096 + 64


def test_a_chain_of_two_thousand_sets_is_linear_in_memory():
    clear_caches()
    gc.collect()
    tracemalloc.start()
    try:
        base = tracemalloc.get_traced_memory()[0]
        kept = [td := TensorDict({})]
        for n in range(2_000):
            kept.append(td := td.set(f"k{n}", ONE))
        kept[:] = [tree.structure for tree in kept]  # the structures, without the tuples of leaves
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - base
    finally:
        tracemalloc.stop()
    assert len(td) == 2_000
    assert len({id(s) for s in kept}) == 2_001
    assert td.structure.paths() == tuple((f"k{n}",) for n in range(2_000))
    assert held < 15 * 2**20, f"{held / 2**20:.1f} MB"


def test_a_long_chain_is_read_and_dies_without_deep_recursion():
    td = TensorDict({})
    for n in range(8_000):
        td = td.set(f"long{n}", ONE)
    assert td.structure.find("long0") == 0
    assert td.structure.find("long7999") == 7_999
    ref = weakref.ref(td.structure.parent.parent)
    del td
    clear_caches()
    gc.collect()
    assert ref() is None


def test_released_tables_are_made_again_with_the_same_content():
    wide = TensorDict({f"w{n}": torch.full((), float(n)) for n in range(500)} | {"x": {"y": ONE}})
    entries, paths, ranks = dict(wide.structure.entries()), wide.structure.paths(), wide.structure.ranks()
    view = wide["x"]
    wide.structure.release()
    assert wide.get("w7").item() == 7  # each of these is the first read after a release
    wide.structure.release()
    assert "w8" in wide
    wide.structure.release()
    assert wide["x", "y"] is view["y"]
    wide.structure.release()
    assert wide.set("w9", ONE)["w9"] is ONE
    wide.structure.release()
    assert wide.update({"w9": ONE})["w9"] is ONE
    wide.structure.release()
    assert list(wide) == list(entries)
    wide.structure.release()
    assert list(wide.keys()) == list(entries)
    assert (wide.structure.entries(), wide.structure.paths(), wide.structure.ranks()) == (entries, paths, ranks)


def test_tables_over_the_limit_are_released_and_reads_stay_right():
    trees = [TensorDict({f"t{n}.{i}": torch.full((), float(i)) for i in range(1_000)}) for n in range(120)]
    for n, td in enumerate(trees):
        assert td[f"t{n}.{n}"].item() == n
    assert sum(td.structure._table is not None for td in trees) < 120
    for n, td in enumerate(trees):
        assert td[f"t{n}.{n}"].item() == n
        assert len(td) == 1_000
