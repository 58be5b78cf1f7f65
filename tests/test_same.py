"""`make same` compares what two commits compute, and not how long they took or what they call it."""

from __future__ import annotations

from same.compare import columns, new_names, renamed


def test_seconds_of_a_history_and_durations_in_words_are_no_difference():
    first = dict(columns("epoch,seconds,loss,note\n1,0.4,0.25,took 0.4 s\n2,0.8,0.125,1:02 min of 3 days\n"))
    second = dict(columns("epoch,seconds,loss,note\n1,0.5,0.25,took 12 s\n2,0.9,0.125,4 min of 3 days\n"))
    assert first == second
    assert list(first) == ["epoch", "loss", "note"]
    assert dict(columns("note\n4 min of 4 days\n")) != dict(columns("note\n4 min of 3 days\n"))


def test_a_number_of_a_table_is_a_difference_whatever_its_last_digit_is():
    assert dict(columns("score\n0.123456789\n")) != dict(columns("score\n0.123456788\n"))


def test_what_was_renamed_is_found_by_its_new_name_and_only_where_the_whole_word_is_meant():
    names = {"contenders": "models", "maps.kind": "maps.verdict"}
    assert renamed("run/report/metrics.json: .contenders[0].auc", names) == "run/report/metrics.json: .models[0].auc"
    assert renamed("metrics.json: .maps.kind", names) == "metrics.json: .maps.verdict"
    assert renamed("metrics.json: .contenders_seen", names) == "metrics.json: .contenders_seen"


def test_a_studys_key_of_an_earlier_version_is_the_key_of_this_one():
    assert renamed("run/report/metrics.json: .settings.train.rate", new_names()).endswith(".settings.train.learning_rate")
