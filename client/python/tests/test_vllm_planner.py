"""What is loaded and saved, and when: the planner alone. Blocks of 4 tokens."""

from __future__ import annotations

import pytest

from cistern.vllm.planner import Planner


def keys_of(count):
    return [f"key-{i}".encode() for i in range(count)]


def planner(**more):
    return Planner(4, **{"load_async": True, "saves": True, **more})


def run_step(plan, step, **tokens):
    """A step that went well."""
    plan.note(step, tokens)
    plan.confirm(step)


# --- Loading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load_async, present, computed, tokens, offered", [
    (True, [1, 1, 1], 0, 13, 12),
    (True, [1, 1, 1], 0, 12, 12),  # all of it: the engine computes the last token again
    (False, [1, 1, 1], 0, 12, 8),  # the step needs a token to compute
    (False, [1, 1, 1], 0, 13, 12),
    (True, [1, 0, 1], 0, 13, 4),  # only the run from the front
    (True, [0, 1, 1], 0, 13, 0),
    (True, [0, 1, 1], 4, 13, 8),  # the engine has the first block itself
    (True, [1, 1, 1], 12, 13, 0),
    (True, [1, 1, 1], 6, 13, 0),  # in the middle of a block
    (True, [], 0, 13, 0),
])
def test_what_is_offered(load_async, present, computed, tokens, offered):
    plan = planner(load_async=load_async)
    state = plan.add("r", tokens)
    plan.looked_up(state, [bool(one) for one in present], b"ticket")
    assert plan.offer(state, keys_of(tokens // 4), computed, tokens) == offered


def test_asking_twice_changes_nothing():
    plan = planner()
    state = plan.add("r", 13)
    plan.looked_up(state, [True, True, False], b"ticket")
    assert [plan.offer(state, keys_of(3), 0, 13) for _ in range(3)] == [8, 8, 8]
    load = plan.began(state, keys_of(3), [7, 8, 9, 10], 8)
    assert (load.keys, load.block_ids, load.ticket) == (keys_of(2), [7, 8], b"ticket")


def test_blocks_behind_those_that_the_engine_has():
    plan = planner()
    state = plan.add("r", 13)
    plan.looked_up(state, [True] * 3, b"t")
    assert plan.offer(state, keys_of(3), 4, 13) == 8
    load = plan.began(state, keys_of(3), [7, 8, 9, 10], 8)
    assert (load.keys, load.block_ids) == (keys_of(3)[1:], [8, 9])


def test_nothing_is_loaded_that_was_not_taken():
    plan = planner()
    state = plan.add("r", 13)
    plan.looked_up(state, [True] * 3, b"t")
    plan.offer(state, keys_of(3), 0, 13)
    assert plan.began(state, keys_of(3), [7, 8, 9, 10], 0) is None
    assert plan.began(state, keys_of(3), [7, 8, 9, 10], 4).keys == keys_of(1)


@pytest.mark.parametrize("bad, again", [([7], 0), ([8], 4), ([9], 8)])
def test_keys_that_failed_are_not_offered_again(bad, again):
    plan = planner()
    state = plan.add("r", 13)
    plan.looked_up(state, [True] * 3, b"t")
    plan.offer(state, keys_of(3), 0, 13)
    plan.began(state, keys_of(3), [7, 8, 9, 10], 12)
    assert plan.load_failed(set(bad)) == ["r"]
    assert plan.offer(state, keys_of(3), 0, 13) == again
    # Not even when the pool has them anew: they failed for this request.
    plan.looked_up(state, [True] * 3, b"t")
    assert plan.offer(state, keys_of(3), 0, 13) == again
    # Another request may try.
    other = plan.add("other", 13)
    plan.looked_up(other, [True] * 3, b"t")
    assert plan.offer(other, keys_of(3), 0, 13) == 12


# --- Saving -------------------------------------------------------------------------------------------


def test_chunked_prefill_is_saved_as_it_is_confirmed():
    plan = planner()
    state = plan.add("r", 22)
    keys, blocks = keys_of(5), [3, 4, 5, 6, 7, 8]
    plan.note(1, {"r": 10})
    assert plan.plan_save(state, keys, blocks) is None  # the step is not over
    plan.confirm(1)
    save = plan.plan_save(state, keys, blocks)
    assert (save.keys, save.block_ids) == (keys[:2], [3, 4])
    run_step(plan, 2, r=20)
    assert plan.plan_save(state, keys, blocks).block_ids == [5, 6, 7]
    run_step(plan, 3, r=22)
    assert plan.plan_save(state, keys, blocks) is None


def test_a_chains_chunks_go_to_one_place():
    plan = planner()
    state = plan.add("r", 22)
    run_step(plan, 1, r=8)
    first = plan.plan_save(state, keys_of(5), [3, 4, 5, 6, 7, 8])
    run_step(plan, 2, r=20)
    assert first.affinity == plan.plan_save(state, keys_of(5), [3, 4, 5, 6, 7, 8]).affinity != 0


def test_what_the_pool_has_is_not_saved_again():
    plan = planner()
    state = plan.add("r", 17)
    plan.looked_up(state, [True, False, True, False], b"t")
    run_step(plan, 1, r=17)
    assert plan.plan_save(state, keys_of(4), [3, 4, 5, 6, 7]).block_ids == [4, 6]


def test_placeholder_blocks_are_not_saved():
    plan = planner()
    state = plan.add("r", 17)
    run_step(plan, 1, r=17)
    assert plan.plan_save(state, keys_of(4), [0, 4, 0, 6, 7]).block_ids == [4, 6]


def test_only_full_blocks_with_keys_are_saved():
    plan = planner()
    state = plan.add("r", 17)
    run_step(plan, 1, r=17)
    assert plan.plan_save(state, keys_of(2), [3, 4, 5, 6, 7]).block_ids == [3, 4]
    assert plan.plan_save(state, keys_of(4), [3, 4, 5, 6, 7]).block_ids == [5, 6]


def test_a_failed_load_taints_its_step_and_those_under_way():
    """The blocks behind a missing one were computed from garbage: on this rank and on the others."""
    plan = planner(load_async=False)
    state, other = plan.add("r", 17), plan.add("other", 17)
    plan.looked_up(state, [True, False, False, False], b"t")
    plan.offer(state, keys_of(4), 0, 17)
    plan.began(state, keys_of(4), [3, 4, 5, 6, 7], 4)
    run_step(plan, 1, other=8)
    plan.note(2, {"r": 17, "other": 12})
    plan.note(3, {"r": 18, "other": 16})  # scheduled before the answer to 2 came
    plan.load_failed({3})
    plan.distrust()
    plan.confirm(3)
    assert plan.plan_save(state, keys_of(4), [3, 4, 5, 6, 7]) is None
    assert plan.plan_save(other, keys_of(4), [13, 14, 15, 16, 17]).block_ids == [13, 14]
    # The engine computes it anew, from the failed block on; the failed one is saved, too.
    run_step(plan, 4, r=17, other=17)
    assert plan.plan_save(state, keys_of(4), [3, 4, 5, 6, 7]).block_ids == [3, 4, 5, 6]
    assert plan.plan_save(other, keys_of(4), [13, 14, 15, 16, 17]).block_ids == [15, 16]


def test_preemption_takes_the_blocks_away():
    plan = planner()
    state = plan.add("r", 17)
    run_step(plan, 1, r=8)
    plan.note(2, {"r": 16})
    plan.preempted("r")
    plan.confirm(2)
    # What was confirmed was in the old blocks.
    assert plan.plan_save(state, keys_of(4), [23, 24, 25, 26, 27]) is None
    plan.began(state, keys_of(4), [23, 24, 25, 26, 27], 0)
    run_step(plan, 3, r=9)
    assert plan.plan_save(state, keys_of(4), [23, 24, 25, 26, 27]).block_ids == [23, 24]


def test_what_was_saved_once_and_is_gone_is_saved_again():
    plan = planner()
    state = plan.add("r", 17)
    run_step(plan, 1, r=17)
    assert plan.plan_save(state, keys_of(4), [3, 4, 5, 6, 7]).keys == keys_of(4)
    # It is preempted, and finds its own blocks in the pool, but for one that has gone bad.
    plan.preempted("r")
    plan.looked_up(state, [True] * 4, b"t")
    assert plan.offer(state, keys_of(4), 0, 17) == 16
    plan.began(state, keys_of(4), [13, 14, 15, 16, 17], 16)
    plan.load_failed({14})
    plan.distrust()
    plan.began(state, keys_of(4), [13, 14, 15, 16, 17], 0)
    run_step(plan, 2, r=17)
    assert plan.plan_save(state, keys_of(4), [13, 14, 15, 16, 17]).block_ids == [14]


def test_short_prompts_are_below_the_threshold():
    plan = planner(store_threshold=16)
    short, long = plan.add("short", 15), plan.add("long", 16)
    run_step(plan, 1, short=15, long=16)
    assert plan.plan_save(short, keys_of(3), [3, 4, 5, 6]) is None
    assert not plan.may_save_more(short, keys_of(3), 15)
    assert plan.plan_save(long, keys_of(4), [7, 8, 9, 10]).block_ids == [7, 8, 9, 10]


def test_a_consumer_saves_nothing():
    plan = planner(saves=False)
    state = plan.add("r", 16)
    run_step(plan, 1, r=16)
    assert plan.plan_save(state, keys_of(4), [3, 4, 5, 6]) is None
    assert not plan.may_save_more(state, keys_of(4), 16)


def test_with_drafts_only_the_prompt_is_sure():
    plan = planner(prompt_only=True)
    state = plan.add("r", 9)
    run_step(plan, 1, r=16)
    assert plan.plan_save(state, keys_of(4), [3, 4, 5, 6]).block_ids == [3, 4]
    plan = planner()
    state = plan.add("r", 9)
    run_step(plan, 1, r=16)
    assert plan.plan_save(state, keys_of(4), [3, 4, 5, 6]).block_ids == [3, 4, 5, 6]


def test_a_request_that_ends_says_whether_there_is_more():
    plan = planner()
    state = plan.add("r", 12)
    assert plan.may_save_more(state, keys_of(3), 12)
    run_step(plan, 1, r=12)
    plan.plan_save(state, keys_of(3), [3, 4, 5])
    assert not plan.may_save_more(state, keys_of(3), 13)
    assert plan.may_save_more(state, keys_of(4), 16)


def test_steps_that_nobody_reports_are_forgotten():
    plan = planner()
    plan.add("r", 12)
    for step in range(1, 2000):
        plan.note(step, {"r": step})
    assert len(plan._notes) < 300
