"""Describes the rules between the options of a connector in sentences.

Used by the command line, the API and the generated reference docs.
"""

from tidegate.plugin.option import OptionSet


def rules(options: OptionSet) -> list[str]:
    """The rules between options, as sentences."""
    found = [f"exactly one of {', '.join(group)}" for group in options.exclusive]
    found += [f"at most one of {', '.join(group)}" for group in options.at_most_one]
    found += [f"all of {', '.join(group)}, or none" for group in options.bundled]
    found += [
        f"{', '.join(when.required)} where {when.key} is {' or '.join(map(str, when.values))}"
        for when in options.conditions
    ]
    return found
