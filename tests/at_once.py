# SPDX-License-Identifier: MIT
"""Tests that mostly wait: all of a module at once, from its beginning, and asked for when the others are over.

    at_once = AtOnce()

    @at_once
    def test_what_happens_in_time(start):       start: as of the fixture's argument
        ...

    told = at_once.fixture(make_start)          make_start(directory): a context that gives START
"""
from concurrent import futures

import pytest


def last(items):
    """The collected tests with those that wait behind the others of their file."""
    waiting = {path: [item for item in items if item.path == path and hasattr(item.function, "waits")]
               for path in {item.path for item in items}}
    end = {item.path: number for number, item in enumerate(items)}
    ordered = []
    for number, item in enumerate(items):
        if item not in waiting[item.path]:
            ordered.append(item)
        if end[item.path] == number:
            ordered += waiting[item.path]
    return ordered


class AtOnce:
    def __init__(self):
        self.stories = []

    def __call__(self, story):
        self.stories.append(story)

        def test(told):
            told[story].result()
        test.__doc__ = story.__doc__
        test.waits = True
        return test

    def fixture(self, make_start):
        @pytest.fixture(scope="module", autouse=True)
        def told(tmp_path_factory):
            def tell(story, directory):
                with make_start(directory) as start:
                    story(start)
            with futures.ThreadPoolExecutor(len(self.stories)) as pool:
                yield {story: pool.submit(tell, story, tmp_path_factory.mktemp(story.__name__[:40]))
                       for story in self.stories}
        return told
