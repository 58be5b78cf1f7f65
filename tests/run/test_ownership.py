"""One process at a time makes what lies in a folder."""

from __future__ import annotations

import threading

from mri_vit.run.atomic import file_lock


def test_a_second_waits_until_the_first_has_made_it(tmp_path):
    order, inside = [], threading.Event()

    def first() -> None:
        with file_lock(tmp_path):
            inside.set()
            waited.wait(0.3)
            order.append("first")

    waited = threading.Event()
    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    with file_lock(tmp_path):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
