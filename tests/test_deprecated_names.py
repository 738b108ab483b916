"""Names of version 0.1 still work for one release, with a warning that gives the new name."""

import pytest

import headwise as hw

OLD = {"Mean": "MeanAblation", "Resample": "ResampleAblation", "Scale": "ScaleHeads", "Sites": "Activations"}


@pytest.mark.parametrize(("old", "new"), sorted(OLD.items()))
def test_a_deprecated_name_warns_and_gives_the_new_object(old, new):
    with pytest.warns(DeprecationWarning, match=f"headwise.{old} is now headwise.{new}"):
        assert getattr(hw, old) is getattr(hw, new)
    assert old not in hw.__all__ and new in hw.__all__
