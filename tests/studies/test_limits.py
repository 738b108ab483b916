"""Counts that no build could finish, and seeds and rates that are none, are refused before anything is measured."""

import pytest

from headwise.core.errors import StudyError
from headwise.studies.profile.spec import ProfileOptions
from headwise.studies.registry import studies


def test_a_count_that_would_not_end_is_refused():
    with pytest.raises(StudyError, match=r"profile.repeats must be at most 10,000,000, not 100000000000000000000"):
        ProfileOptions(repeats=10**20)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seeds_are_whole_numbers(seed):
    with_seed = [spec.options for spec in studies().values() if "seed" in spec.options.__dataclass_fields__]
    assert with_seed
    for options in with_seed:
        with pytest.raises(StudyError, match="seed must be a whole number from 0"):
            options(seed=seed)
