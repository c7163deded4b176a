"""What others do: dlt and sling copy a table, Debezium and mysql-replication read a log. Each is
called as its documentation says. Started by databases.py and databases_cdc.py with the Python of
the environment in which they are installed, one JSON request a line; nothing of Tidegate is there.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

STALLED_S = 120.0


def dlt(work: Path, request: dict[str, Any]) -> dict[str, Any]:
    """A table by connectorx, through Arrow."""
    import dlt
    from dlt.sources.sql_database import sql_table

    began = time.perf_counter()
    scheme = (
        request["source"]
        .replace("mysql://", "mysql+pymysql://")
        .replace("postgresql://", "postgresql+psycopg2://")
    )
    cut = {
        "conn": request["source"],
        "partition_on": "id",
        "partition_num": 2,
        "return_type": "arrow",
    }
    table = sql_table(
        credentials=scheme, table=request["table"], backend="connectorx", backend_kwargs=cut
    )
    table.apply_hints(table_name=request["into"], write_disposition="replace")
    pipeline = dlt.pipeline(
        "bench",
        destination=dlt.destinations.postgres(request["target"]),
        dataset_name="by_dlt",
        pipelines_dir=str(work),
    )
    told = pipeline.run(table, loader_file_format="csv")
    told.raise_on_failed_jobs()
    return {"seconds": time.perf_counter() - began}


def sling(work: Path, request: dict[str, Any]) -> dict[str, Any]:
    """A table by its program."""
    began = time.perf_counter()
    environ = {
        **os.environ,
        "FROM_DB": request["source"],
        "TO_DB": request["target"],
        "SLING_DISABLE_TELEMETRY": "TRUE",
    }
    command = [
        request["program"],
        "run",
        "--src-conn",
        "FROM_DB",
        "--src-stream",
        request["stream"],
        "--tgt-conn",
        "TO_DB",
    ]
    command += ["--tgt-object", request["into"], "--mode", "full-refresh"]
    done = subprocess.run(
        command,
        env={**environ, "SLING_HOME_DIR": str(work / "sling")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-1500:])
    return {"seconds": time.perf_counter() - began}


def replication(work: Path, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001  # by protocol
    """The rows of a log, counted in a loop: as little as can be done with them."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    began, rows = time.perf_counter(), 0
    settings = {"host": "127.0.0.1", "port": request["port"], "user": "root", "passwd": ""}
    kinds = [DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent]
    stream = BinLogStreamReader(
        settings,
        server_id=77,
        log_file=request["file"],
        log_pos=request["pos"],
        resume_stream=True,
        only_events=kinds,
    )
    for event in stream:
        if event.table == request["table"]:
            rows += len(event.rows)
        if rows >= request["changes"]:
            break
    stream.close()
    return {"seconds": time.perf_counter() - began, "rows": rows}


def debezium(work: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The changes after the last place that it remembers, as JSON, counted by a handler: as little
    as can be done with them. It remembers where it ended.
    """
    from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine

    wanted, over = request["changes"], threading.Event()
    seen = {"rows": 0, "first": 0.0, "last": 0.0}

    class Handler(BasePythonChangeHandler):
        def handleJsonBatch(self, records: Any) -> None:
            seen["first"] = seen["first"] or time.perf_counter()
            seen["rows"] += len(records)
            seen["last"] = time.perf_counter()
            if seen["rows"] >= wanted:
                over.set()

    began = time.perf_counter()
    engine = DebeziumJsonEngine(
        properties={
            **request["properties"],
            "offset.storage.file.filename": str(work / request["offsets"]),
        },
        handler=Handler(),
    )
    trouble: list[BaseException] = []
    thread = threading.Thread(target=_run, args=(engine, trouble, over), daemon=True)
    thread.start()
    before = -1
    while not over.wait(STALLED_S) and before != seen["rows"]:
        before = seen["rows"]
    ended = seen["last"] or time.perf_counter()
    engine.close()
    thread.join(timeout=STALLED_S)
    if seen["rows"] < wanted:
        raise RuntimeError(f"Debezium gave {seen['rows']} of {wanted} changes: {trouble}")
    return {"seconds": ended - began, "rows": seen["rows"], "streaming": ended - seen["first"]}


def _run(engine: Any, trouble: list[BaseException], over: threading.Event) -> None:
    try:
        engine.run()
    except BaseException as error:
        trouble.append(error)
    finally:
        over.set()


ACTIONS = {"dlt": dlt, "sling": sling, "replication": replication, "debezium": debezium}


def main() -> None:
    """Answer requests until there are no more.

    What goes wrong is an answer too: the others are measured all the same.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work = Path(sys.argv[1])
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = ACTIONS[request["do"]](work, request)
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"[:1500]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
