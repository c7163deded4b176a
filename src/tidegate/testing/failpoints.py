"""Which failpoints there are: read from the source, so that a test of all of them cannot forget
one.
"""

import ast
from pathlib import Path

import tidegate


def failpoint_names() -> list[str]:
    """Every literal name that is passed to `failpoint`, sorted."""
    names = set()
    for path in Path(tidegate.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "failpoint"
            ):
                argument = node.args[0]
                assert isinstance(argument, ast.Constant), (
                    f"{path}:{node.lineno}: a failpoint's name is a literal"
                )
                names.add(str(argument.value))
    return sorted(names)
