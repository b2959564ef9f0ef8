"""Lists of names in messages."""

from __future__ import annotations

from readers.store.wording import did_you_mean, few, few_text


def test_of_many_the_first_few_are_named_and_the_others_counted():
    """No more is said than that there are more; and nothing, where all are named."""
    assert few(["a", "b"], 2) == ["a", "b"]
    assert few(["a", "b", "c"], 2) == ["a", "b", "and 1 more"]
    assert few(range(5002), 2, lambda n: f"<{n}>", what=" of them") == [
        "<0>",
        "<1>",
        "and 5,000 more of them",
    ]
    assert few([], 2) == []


def test_in_a_sentence_they_are_one_text():
    """The last word follows without a comma."""
    assert few_text(["a", "b"], 2) == "a, b"
    assert few_text(["a", "b", "c", "d"], 2, repr) == "'a', 'b' and 2 more"
    assert few_text([], 2) == ""


def test_the_first_of_many_may_stand_for_all():
    """Where only some are remembered by name, it is known how many there are."""
    assert few(["a", "b"], 2, count=9) == ["a", "b", "and 7 more"]
    assert few_text(["a", "b"], 5, repr, count=9) == "'a', 'b' and 7 more"
    assert few_text(["a", "b"], 5, count=2) == "a, b"


def test_a_mistyped_name_is_asked_for():
    """The nearest one, if any is near; what is asked for may be of any type."""
    assert did_you_mean("lable", ["image", "label"]) == " Did you mean 'label'?"
    assert did_you_mean(7, ["image", "label"]) == ""
