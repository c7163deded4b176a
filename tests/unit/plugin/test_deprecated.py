"""Connectors written for the old names of the contract still work, with a DeprecationWarning."""

import importlib

import pytest

from tidegate.plugin import contract
from tidegate.plugin.deprecated import OLD_METHODS, OLD_NAMES
from tidegate.plugin.option import OptionKind


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [(module, old, new) for module, names in OLD_NAMES.items() for old, new in names.items()],
)
def test_old_names_can_be_imported(module: str, old: str, new: str) -> None:
    imported = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{old} is deprecated.*use {new}") as caught:
        assert getattr(imported, old) is getattr(imported, new)
    assert caught[0].filename == __file__


def test_an_import_of_an_old_name_is_reported_where_it_is_written() -> None:
    with pytest.warns(DeprecationWarning, match=r"option\.Kind is deprecated") as caught:
        from tidegate.plugin.option import Kind  # type: ignore[attr-defined]  # an old name
    assert Kind is OptionKind
    assert caught[0].filename == __file__


def test_unknown_names_are_still_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Wrong'"):
        _ = contract.Wrong  # type: ignore[attr-defined]  # not there on purpose


@pytest.mark.parametrize("base", OLD_METHODS)
def test_old_methods_override_the_new_ones(base: str) -> None:
    methods = {old: lambda *_: "old" for old in OLD_METHODS[base]}
    with pytest.warns(DeprecationWarning, match="is deprecated") as caught:
        made = type(getattr(contract, base))("Old", (getattr(contract, base),), methods)
    assert len(caught) == len(methods)
    for new in OLD_METHODS[base].values():
        assert getattr(made, new)() == "old"


def test_a_class_statement_is_reported_where_it_is_written() -> None:
    with pytest.warns(DeprecationWarning, match=r"Old\.reach is deprecated") as caught:

        class Old(contract.Sink):
            def reach(self) -> bool:
                return True

    assert caught[0].filename == __file__


def test_old_methods_of_a_mixin_count() -> None:
    class Mixin:
        def at_end(self, offset: int) -> bool:
            return offset == 7

    with pytest.warns(DeprecationWarning, match="use is_exhausted"):

        class Old(Mixin, contract.Source):  # type: ignore[misc]  # an old-style class
            pass

    assert Old.is_exhausted(None, 7)  # type: ignore[arg-type]  # without an instance


def test_a_subclass_of_an_old_connector_may_use_the_new_names() -> None:
    with pytest.warns(DeprecationWarning, match="use has_backlog"):

        class Old(contract.Source):
            def behind(self, _offset: int) -> bool:
                return False

    class New(Old):  # no second warning
        def has_backlog(self, offset: int) -> bool:  # noqa: ARG002  # protocol
            return True

    class Newer(New):
        pass

    assert Old.has_backlog(None, 0) is False  # type: ignore[arg-type]  # without an instance
    assert Newer.has_backlog(None, 0) is True  # type: ignore[arg-type]  # without an instance


def test_old_fields_are_accepted_and_readable() -> None:
    with pytest.warns(DeprecationWarning, match=r"Resource\(place=\.\.\.\)") as caught:
        resource = contract.Resource(kind="slot", name="a", place="host")  # type: ignore[call-arg]  # an old keyword
    assert caught[0].filename == __file__
    assert resource.location == "host"
    restore = contract.SinkRestore(
        lineage="L", generation=1, checkpoint=3, uncheckpointed_commits=(4,), rewind=True
    )
    with pytest.warns(DeprecationWarning, match=r"SinkRestore\.(ahead|back)"):
        assert (restore.ahead, restore.back) == ((4,), True)  # type: ignore[attr-defined]  # old attributes
