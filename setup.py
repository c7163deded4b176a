"""Builds the compiled decoders where Cython and a C compiler are there.

Where they are not, nothing fails: the decoders in Python do the same work.
"""

import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MODULES = (
    "tidegate.databases.mysql.binlog_fast_rows",
    "tidegate.databases.postgres.pgoutput_fast_rows",
)
SOURCES = {module: f"src/{module.replace('.', '/')}.pyx" for module in MODULES}


class BuildWhatCanBeBuilt(build_ext):
    """An extension that cannot be built is left out, with a word."""

    def build_extensions(self) -> None:
        for extension in list(self.extensions):
            try:
                self.build_extension(extension)
            except Exception as error:
                print(
                    f"{extension.name} is not built, Python does its work: {error}", file=sys.stderr
                )
                self.extensions.remove(extension)


try:
    from Cython.Build import cythonize
except ImportError:
    modules = []
else:
    modules = cythonize(
        [Extension(name, [path]) for name, path in SOURCES.items()],
        build_dir="build/cython",
        quiet=True,
    )

setup(ext_modules=modules, cmdclass={"build_ext": BuildWhatCanBeBuilt})
