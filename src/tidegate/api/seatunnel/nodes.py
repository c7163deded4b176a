"""This server process for operators: metrics, threads, log levels, tags of its worker.

In SeaTunnel a node collects the metrics of every member. Servers here do not call each other: a
server returns its own metrics, and the addresses of the others.
"""

import logging
import os
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidegate.api.context import ApiContext
from tidegate.api.seatunnel.commands import json_object, read_body
from tidegate.coordinator.server_heartbeat import live_servers
from tidegate.model.errors import UserError

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "OFF")
_NUMBERS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "OFF": logging.CRITICAL + 10,
}
ROOT = "tidegate"
QUEUES = (
    *("async", "client", "client.query", "client.blocking", "query", "scheduled", "io"),
    *(
        "system",
        "operations",
        "priorityOperation",
        "mapLoad",
        "mapLoadAllKeys",
        "cluster",
        "response",
    ),
)


class NodeHandlers:
    def __init__(self, context: ApiContext) -> None:
        self.context = context

    async def monitoring(self, _request: Request) -> Response:
        """Return one object per member: this server's metrics, and the addresses of the others."""
        lease = self.context.cache.lease()
        leader = lease.value.address if lease else ""
        own = await run_in_threadpool(node_metrics)
        members = [_member(self.context.me.address, leader) | own]
        known = live_servers(
            self.context.cache, self.context.settings.coordinator.lease_ms, self.context.clock
        )
        others = {leader, *(server.address for server in known)} - {"", self.context.me.address}
        return JSONResponse(
            members
            + [
                _member(each, leader)
                | {"remark": f"its figures: {each}/system-monitoring-information"}
                for each in sorted(others)
            ]
        )

    async def thread_dump(self, _request: Request) -> Response:
        """Return the stack of every thread of this server."""
        frames, current = sys._current_frames(), threading.get_ident()
        dump = [
            {
                "threadName": thread.name,
                "threadId": thread.ident,
                "threadState": "RUNNABLE" if thread.ident == current else "WAITING",
                "stackTrace": (
                    "".join(traceback.format_stack(frames[thread.ident]))
                    if thread.ident in frames
                    else ""
                ),
            }
            for thread in threading.enumerate()
        ]
        return JSONResponse(dump)

    async def running_threads(self, _request: Request) -> Response:
        """List the threads. Python has no class loaders: the interpreter is shown instead."""
        return JSONResponse(
            [
                {"threadName": thread.name, "classLoader": sys.implementation.cache_tag}
                for thread in threading.enumerate()
            ]
        )

    async def update_tags(self, request: Request) -> Response:
        """Replace the tags of this server's worker; an empty object removes them."""
        try:
            given = json_object(await read_body(request))
        except UserError as error:
            text = (
                "Request body is empty."
                if str(error).endswith("is empty")
                else "Invalid JSON format in request body."
            )
            raise UserError(f"{text} Send an object of tags and their values") from None
        bad = [
            key for key, value in given.items() if not isinstance(value, str | int | float | bool)
        ]
        if bad:
            raise UserError(f"the tags {', '.join(bad)} are not plain values")
        if self.context.set_worker_tags is None:
            raise UserError(
                "this server has no worker whose tags could be changed: call the server that has it"
            )
        self.context.set_worker_tags(
            {
                key: value if isinstance(value, str) else str(value).lower()
                for key, value in given.items()
            }
        )
        return JSONResponse({"status": "success", "message": "update node tags done."})

    async def loggers(self, request: Request) -> Response:
        """Return log levels of this process; POST or PUT sets one, DELETE resets it."""
        name = request.path_params.get("name", "")
        if request.query_params.get("scope", "node").lower() != "node":
            raise UserError(
                "scope=cluster is not supported: servers do not call each other, so call each of"
                " them"
            )
        if request.method == "GET":
            return JSONResponse(
                _level(_logger(name)) if name else [_level(each) for each in _loggers()]
            )
        logger = _logger(name)
        logger.setLevel(
            logging.NOTSET
            if request.method == "DELETE" and logger.name != ROOT
            else await _requested_level(request)
        )
        return JSONResponse(_level(logger))


def _member(address: str, leader: str) -> dict[str, str]:
    parts = urlsplit(address)
    return {
        "isMaster": "true" if address == leader else "false",
        "host": parts.hostname or "",
        "port": str(parts.port or ""),
    }


def node_metrics() -> dict[str, str]:
    """Return the metrics of this host and process under SeaTunnel's names.

    "heap" is the memory of this process; what only a JVM has is 0.
    """
    memory, pages = _kilobytes("/proc/meminfo"), _kilobytes("/proc/self/status")
    used, total = pages.get("VmRSS", 0), memory.get("MemTotal", 0)
    load = os.getloadavg()[0]
    cores = os.cpu_count() or 1
    found = {
        "processors": str(cores),
        "physical.memory.total": _size(total),
        "physical.memory.free": _size(memory.get("MemAvailable", 0)),
        "swap.space.total": _size(memory.get("SwapTotal", 0)),
        "swap.space.free": _size(memory.get("SwapFree", 0)),
        "heap.memory.used": _size(used),
        "heap.memory.free": _size(memory.get("MemAvailable", 0)),
        "heap.memory.total": _size(total),
        "heap.memory.max": _size(total),
        "heap.memory.used/total": _percent(used, total),
        "heap.memory.used/max": _percent(used, total),
        **{
            f"{kind}.gc.{what}": value
            for kind in ("minor", "major")
            for what, value in (("count", "0"), ("time", "0ms"))
        },
        "load.process": _percent(_process_seconds(), max(_uptime_seconds() * cores, 1)),
        "load.system": _percent(min(load, cores), cores),
        "load.systemAverage": f"{load:.2f}",
        "thread.count": str(threading.active_count()),
        "thread.peakCount": str(threading.active_count()),
        "cluster.timeDiff": "0",
        "event.q.size": "0",
        **{f"executor.q.{name}.size": "0" for name in QUEUES},
        "operations.completed.count": "0",
        "operations.running.count": "0",
        "operations.pending.invocations.percentage": "0.00%",
        "operations.pending.invocations.count": "0",
        "proxy.count": "0",
        "clientEndpoint.count": "0",
        "connection.active.count": "0",
        "client.connection.count": "0",
        "connection.count": "0",
    }
    return found | {"host.name": socket.gethostname()}


def _kilobytes(path: str) -> dict[str, int]:
    """Parse the lines `Name:  123 kB` of a file in /proc."""
    found = {}
    with open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, rest = line.partition(":")
            words = rest.split()
            if len(words) == 2 and words[1] == "kB":
                found[name] = int(words[0])
    return found


def _process_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _uptime_seconds() -> float:
    """Return how long this process has been running."""
    with open("/proc/self/stat", encoding="ascii") as file:
        started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    with open("/proc/uptime", encoding="ascii") as file:
        return max(0.0, float(file.read().split()[0]) - started)


def _size(kilobytes: int) -> str:
    if kilobytes >= 10 * 1024 * 1024:
        return f"{kilobytes / 1024 / 1024:.1f}G"
    return f"{kilobytes / 1024:.1f}M" if kilobytes else "0"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "0.00%"


def _loggers() -> list[logging.Logger]:
    names = [name for name in logging.Logger.manager.loggerDict if name.split(".")[0] == ROOT]
    return [logging.getLogger(name) for name in sorted({ROOT, *names})]


def _logger(name: str) -> logging.Logger:
    """Return an existing logger: a request does not create one."""
    full_name = ROOT if name.lower() in ("root", "rootlogger") else name
    for logger in _loggers():
        if logger.name == full_name:
            return logger
    raise UserError(f"logger {name!r} does not exist: GET /loggers lists them")


def _level(logger: logging.Logger) -> Mapping[str, Any]:
    return {
        "name": logger.name,
        "level": _level_name(logger.level) if logger.level else None,
        "effectiveLevel": _level_name(logger.getEffectiveLevel()),
    }


def _level_name(number: int) -> str:
    return next((name for name in reversed(LEVELS) if _NUMBERS[name] <= number), LEVELS[0])


async def _requested_level(request: Request) -> int:
    """Return the level that a request sets; deleting that of the root logger means INFO."""
    if request.method == "DELETE":
        return logging.INFO
    text = request.query_params.get("level") or json_object(await read_body(request)).get("level")
    if not isinstance(text, str) or text.upper() not in LEVELS:
        raise UserError(
            f"the level is missing or unknown: use one of {', '.join(LEVELS)}, as ?level= or in"
            " the body"
        )
    return _NUMBERS[text.upper()]
