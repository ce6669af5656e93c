"""Which chat is next: shares of keys and of their vocabularies, quick chats first."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from service.apis.dialects.templates.queue import SLOW_S, Chat, ChatQueue, Flow

SLOW, QUICK = 0.8, 0.001


def chat(client: str, vocabulary: str) -> Chat:
    return Chat(Flow(client, vocabulary), b"", None)


def make(**seconds: float) -> ChatQueue:
    queue = ChatQueue()
    for vocabulary, each in seconds.items():
        queue.costs.learn(vocabulary, each)
    return queue


def take_all(queue: ChatQueue) -> list[Flow]:
    flows = []
    while (taken := queue.take(only_quick=False)) is not None:
        flows.append(taken.flow)
    assert len(queue) == 0
    return flows


def test_a_quick_chat_overtakes_slow_ones_of_any_number():
    queue = make(quick=QUICK, **{f"slow{i}": SLOW for i in range(16)})
    for i in range(16):
        queue.add(chat("", f"slow{i}"))
    queue.add(chat("", "quick"))
    assert take_all(queue)[0].vocabulary == "quick"


def test_slow_chats_get_their_share_beside_quick_ones():
    queue = make(quick=QUICK, slow=SLOW)
    queue.add(chat("", "slow"))
    for _ in range(2_000):
        queue.add(chat("", "quick"))
    order = [flow.vocabulary for flow in take_all(queue)]
    assert 0.9 * SLOW / QUICK < order.index("slow") < 1.1 * SLOW / QUICK


def test_keys_have_equal_shares_whatever_the_number_of_their_vocabularies():
    queue = make(**{f"v{i}": QUICK for i in range(9)})
    for _ in range(50):
        for i in range(8):
            queue.add(chat("many", f"v{i}"))
        queue.add(chat("one", "v8"))
    shares = Counter(flow.client for flow in take_all(queue)[:80])
    assert abs(shares["many"] - shares["one"]) <= 2


def test_vocabularies_of_a_key_have_equal_shares_of_the_seconds():
    queue = make(a=QUICK, b=3 * QUICK)
    for _ in range(100):
        queue.add(chat("", "a"))
        queue.add(chat("", "b"))
    shares = Counter(flow.vocabulary for flow in take_all(queue)[:80])
    assert abs(shares["a"] - 3 * shares["b"]) <= 4


def test_who_comes_back_has_no_credit_and_no_debt_of_old():
    queue = make(a=QUICK, b=QUICK)
    for _ in range(100):
        queue.add(chat("busy", "a"))
        queue.take(only_quick=False)
    for _ in range(20):
        queue.add(chat("busy", "a"))
        queue.add(chat("new", "b"))
    shares = Counter(flow.client for flow in take_all(queue)[:20])
    assert abs(shares["busy"] - shares["new"]) <= 2


def test_slow_and_unknown_vocabularies_leave_a_process_to_the_others():
    queue = make(quick=QUICK, slow=2 * SLOW_S)
    for vocabulary in ("slow", "unknown"):
        queue.add(chat("", vocabulary))
    assert queue.take(only_quick=True) is None
    queue.add(chat("", "quick"))
    taken = queue.take(only_quick=True)
    assert taken is not None and taken.flow.vocabulary == "quick"
    assert len(queue) == 2


FLOWS = st.tuples(st.sampled_from("kl"), st.sampled_from(["quick", "slow", "other"]))


@given(st.lists(st.tuples(st.sampled_from(["add", "take", "quick", "remove"]), FLOWS)))
def test_each_chat_is_taken_or_removed_once_and_a_flow_keeps_its_order(steps):
    queue = make(quick=QUICK, slow=SLOW)
    waiting: list[Chat] = []
    for step, flow in steps:
        if step == "add":
            waiting.append(chat(*flow))
            queue.add(waiting[-1])
        elif step == "remove":
            for each in [each for each in waiting if each.flow == flow][:1]:
                queue.remove(each)
                queue.remove(each)
                waiting.remove(each)
        elif (taken := queue.take(only_quick=step == "quick")) is not None:
            first = next(each for each in waiting if each.flow == taken.flow)
            assert taken is first
            waiting.remove(taken)
        assert len(queue) == len(waiting)
    assert len(take_all(queue)) == len(waiting)
