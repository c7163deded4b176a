"""GET: log files of this server's home; files are read in threads.

A file is named by its path below the log directory (`server-8080.log`, `77/driver.log`). Paths
outside of it are not reachable, in no spelling and through no link. Only the last part of a large
file is sent.
"""

import html
from collections.abc import Iterator
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from tidegate.api.context import ApiContext
from tidegate.model.errors import UserError
from tidegate.model.ids import JOB_ID_MAX, whole_number
from tidegate.plugin.secret import plan_texts
from tidegate.redact import redact

BYTES_MAX = 64 * 1024 * 1024
SUFFIXES = (".log", ".err")


class NoSuchLog(UserError):
    """This server has no log file of this name."""

    condition = "unknown-log"

    def __init__(self, name: str) -> None:
        super().__init__(f"log file {name!r} does not exist on this server")


class LogQueries:
    """Handlers for log files. Without a log directory there are none."""

    def __init__(self, context: ApiContext) -> None:
        self.context = context

    async def listed(self, request: Request) -> Response:
        """List links to the log files of this server or of one job; or return one file."""
        name = request.path_params.get("name", "")
        if name.endswith(SUFFIXES):
            return await self._text(name)
        names = [each for each in await run_in_threadpool(self.file_names) if name in each]
        node = self.context.me.address.removeprefix("http://").removeprefix("https://")
        links = [
            {
                "node": node,
                "logLink": f"{self.context.me.address}{self._prefix()}/logs/{each}",
                "logName": each,
            }
            for each in names
        ]
        if request.query_params.get("format", "html").lower() == "json":
            return JSONResponse(links)
        return _page([(link["logLink"], f"{link['node']}-{link['logName']}") for link in links])

    async def here(self, request: Request) -> Response:
        """List the log files of this node as a page with relative links; or return one file."""
        name = request.path_params.get("name", "")
        if name:
            return await self._text(name)
        return _page([(f"log/{each}", each) for each in await run_in_threadpool(self.file_names)])

    async def names(self, _request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.file_names))

    async def _text(self, name: str) -> Response:
        return PlainTextResponse(await run_in_threadpool(self.tail, name))

    def _prefix(self) -> str:
        path = self.context.settings.http.context_path.strip("/")
        return f"/{path}" if path else ""

    def file_names(self) -> list[str]:
        """List the log files by their paths below the log directory."""
        folder = self.context.logs
        return (
            sorted(path.relative_to(folder).as_posix() for path in _files(folder)) if folder else []
        )

    def tail(self, name: str, bytes_max: int = BYTES_MAX) -> str:
        """Return the last part of a file, redacted."""
        folder = self.context.logs
        # Only listed names are accepted: a path is never built from request data.
        if folder is None or name not in self.file_names():
            raise NoSuchLog(name)
        try:
            with open(folder / name, "rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - bytes_max))
                return redact(file.read(bytes_max).decode("utf-8", "replace"), self._secrets(name))
        except OSError:
            raise NoSuchLog(name) from None

    def _secrets(self, name: str) -> frozenset[str]:
        """Return the secrets of the job that owns a file: a library may have logged them."""
        word, cache = name.partition("/")[0], self.context.cache
        job_id = whole_number(word, 1, JOB_ID_MAX)
        if job_id is None:
            return frozenset()
        record, outcome = cache.jobs().get(job_id), cache.outcome(job_id)
        plans = [record.value.plan if record else None, outcome.value.plan if outcome else None]
        return frozenset().union(*(plan_texts(plan) for plan in plans if plan is not None))


def _files(folder: Path) -> Iterator[Path]:
    """Yield regular log files of the directory and of its job directories; no links."""
    for path in [*folder.glob("*"), *folder.glob("*/*")]:
        if (
            path.suffix in SUFFIXES
            and path.is_file()
            and not path.is_symlink()
            and not path.parent.is_symlink()
        ):
            yield path


def _page(links: list[tuple[str, str]]) -> Response:
    items = "".join(
        f'<li><a href="{html.escape(link)}">{html.escape(text)}</a></li>\n' for link, text in links
    )
    return HTMLResponse(
        "<html><head><title>Tidegate log</title></head>\n<body>\n <h2>Tidegate log</h2>\n"
        f" <ul>\n{items} </ul>\n</body></html>"
    )
