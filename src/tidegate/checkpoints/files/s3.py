"""Checkpoint files on S3, with conditional puts for exclusive writes.

Caller: open. The number of requests does not depend on other objects in the bucket. s3fs finds the
credentials and holds the connections. The requests are made here, to distinguish a failed
precondition, a wrong key and an unavailable server. Errors contain only the server's error code,
because requests carry signatures.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

from tidegate.checkpoints.files.base import FileEntry, Files, VersionedFile, inside
from tidegate.checkpoints.files.errors import StorageRefused, StorageUnavailable
from tidegate.checkpoints.files.retry import retry_unavailable
from tidegate.checkpoints.files.s3_options import client_of
from tidegate.model.errors import UserError
from tidegate.retry import Pause, no_retry

try:
    import s3fs
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        PartialCredentialsError,
    )
    from fsspec.asyn import sync
except ImportError:
    raise UserError("checkpoints on S3 need the package s3fs: pip install 'tidegate[s3]'") from None

T = TypeVar("T")
CONCURRENCY_MAX = 32  # requests of one call
PAGE = 1000  # objects per listing and per deletion: a limit of S3
MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
CHANGED = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})
BUSY = frozenset(
    {
        "SlowDown",
        "RequestTimeout",
        "Throttling",
        "TooManyRequests",
        "ServiceUnavailable",
        "InternalError",
    }
)


class S3Files(Files):
    renames = False

    def __init__(self, url: str, options: Mapping[str, str], pause: Pause = no_retry) -> None:
        self.bucket, _, prefix = url.partition("://")[2].partition("/")
        self.prefix = prefix.strip("/")
        self.url = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        self.pause = pause
        self.fs: Any = s3fs.S3FileSystem(
            skip_instance_cache=True, use_listings_cache=False, **client_of(options).arguments
        )

    def _key(self, path: str) -> str:
        return f"{self.prefix}/{inside(path)}".strip("/")

    def _call(self, request: Callable[[Any], Awaitable[T]]) -> T:
        """Send a request on the event loop of fsspec; retry while S3 is unavailable."""

        async def made() -> T:
            return await request(await self.fs.set_session())

        def attempt() -> T:
            try:
                return sync(self.fs.loop, made)  # type: ignore[no-any-return]  # no types
            except ClientError as error:
                raise self._translate(error) from None
            except (NoCredentialsError, PartialCredentialsError):
                raise StorageRefused(
                    f"no credentials found for {self.url}: set fs.s3a.access.key and"
                    " fs.s3a.secret.key, or give the host a role"
                ) from None
            except (BotoCoreError, ConnectionError, TimeoutError) as error:
                raise StorageUnavailable(
                    f"{self.url} is unavailable: {type(error).__name__}"
                ) from None

        try:
            return retry_unavailable(attempt, self.pause, self.url, self._note)
        finally:
            self._note("")

    def _note(self, trouble: str) -> None:
        self.trouble = trouble

    def _translate(self, error: "ClientError") -> Exception:
        """Translate an error of the server."""
        code = _code(error)
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in MISSING:
            return FileNotFoundError(f"{self.url}: {code}")
        if code in BUSY or status >= 500:
            return StorageUnavailable(f"{self.url} is unavailable: {code}")
        if code == "NoSuchBucket":
            return StorageRefused(
                f"the bucket {self.bucket} does not exist: create it, or correct s3.bucket"
            )
        return StorageRefused(
            f"{self.url} rejects a request ({code}): check the keys, their rights on this bucket,"
            " and the clock of this host"
        )

    def read(self, path: str) -> bytes:
        return self._get(path).data

    def _get(self, path: str) -> VersionedFile:
        async def get(client: Any) -> VersionedFile:
            answer = await client.get_object(Bucket=self.bucket, Key=self._key(path))
            async with answer["Body"] as body:
                return VersionedFile(await body.read(), answer["ETag"])

        return self._call(get)

    def write(self, path: str, data: bytes) -> None:
        self.write_tree("", {path: data})

    def write_tree(self, path: str, files: Mapping[str, bytes]) -> None:
        async def put(client: Any) -> None:
            keys = {self._key(f"{path}/{name}".lstrip("/")): data for name, data in files.items()}
            await self._in_parallel(
                [
                    client.put_object(Bucket=self.bucket, Key=key, Body=data)
                    for key, data in keys.items()
                ]
            )

        self._call(put)

    async def _in_parallel(self, requests: list[Awaitable[Any]]) -> None:
        gate = asyncio.Semaphore(CONCURRENCY_MAX)

        async def one(request: Awaitable[Any]) -> None:
            async with gate:
                await request

        await asyncio.gather(*(one(request) for request in requests))

    def create(self, path: str, data: bytes) -> bool:
        return self.replace_if(path, data, None)

    def read_versioned(self, path: str) -> VersionedFile | None:
        """The version is the ETag of the object."""
        try:
            return self._get(path)
        except FileNotFoundError:
            return None

    def replace_if(self, path: str, data: bytes, seen: VersionedFile | None) -> bool:
        """Put with If-Match on the ETag that was read, or with If-None-Match."""
        condition = {"IfNoneMatch": "*"} if seen is None else {"IfMatch": seen.version}

        async def put(client: Any) -> bool:
            try:
                await client.put_object(
                    Bucket=self.bucket, Key=self._key(path), Body=data, **condition
                )
            except ClientError as error:
                if _code(error) in CHANGED | MISSING:
                    return False
                raise
            return True

        return self._call(put)

    def entries(self, path: str) -> list[FileEntry]:
        found: dict[str, FileEntry] = {}
        for page in self._pages(path, delimiter="/"):
            for item in page.get("CommonPrefixes", ()):
                name = PurePosixPath(item["Prefix"]).name
                found[name] = FileEntry(name=name, directory=True)
            for item in page.get("Contents", ()):
                if not item["Key"].endswith("/"):
                    found.setdefault(PurePosixPath(item["Key"]).name, _file(item))
        return [found[name] for name in sorted(found)]

    def walk(self, path: str) -> Iterator[tuple[str, FileEntry]]:
        cut = len(self.prefix) + 1 if self.prefix else 0
        for page in self._pages(path):
            for item in page.get("Contents", ()):
                if not item["Key"].endswith("/"):
                    yield item["Key"][cut:], _file(item)

    def _pages(self, path: str, delimiter: str = "") -> Iterator[Mapping[str, Any]]:
        prefix = f"{self._key(path)}/".lstrip("/")
        more: dict[str, str] = {"Delimiter": delimiter} if delimiter else {}
        while True:
            page = self._call(
                lambda client: client.list_objects_v2(
                    Bucket=self.bucket,
                    Prefix=prefix,
                    MaxKeys=PAGE,
                    **more,  # noqa: B023  # called at once
                )
            )
            yield page
            if not page.get("IsTruncated"):
                return
            more = {**more, "ContinuationToken": page["NextContinuationToken"]}

    def remove(self, path: str) -> None:
        self._call(lambda client: client.delete_object(Bucket=self.bucket, Key=self._key(path)))

    def remove_tree(self, path: str) -> None:
        """Delete in requests of up to PAGE objects."""
        batch: list[str] = []
        for below, _ in self.walk(path):
            batch.append(below)
            if len(batch) == PAGE:
                self._remove_all(batch)
                batch = []
        if batch:
            self._remove_all(batch)

    def _remove_all(self, below: list[str]) -> None:
        objects = [{"Key": self._key(path)} for path in below]
        answer = self._call(
            lambda client: client.delete_objects(
                Bucket=self.bucket, Delete={"Objects": objects, "Quiet": True}
            )
        )
        for failure in answer.get("Errors", ()):
            raise PermissionError(
                f"s3://{self.bucket}/{failure.get('Key', '')} cannot be deleted:"
                f" {failure.get('Code', 'no reason given')}"
            )

    def prune(self, path: str) -> None:
        """Do nothing: S3 has no empty directories."""

    def copy_tree(self, source: str, target: str, last: str = "_manifest.json") -> None:
        """Copy on the server, in parallel; files named `last` after all others."""
        found = [path for path, _ in self.walk(source)]
        self._copy([path for path in found if PurePosixPath(path).name != last], source, target)
        self._copy([path for path in found if PurePosixPath(path).name == last], source, target)

    def _copy(self, found: list[str], source: str, target: str) -> None:
        async def copy(client: Any) -> None:
            def one(path: str) -> Awaitable[Any]:
                to = self._key(f"{target}/{PurePosixPath(path).relative_to(source)}")
                return client.copy_object(  # type: ignore[no-any-return]  # botocore has no types
                    Bucket=self.bucket,
                    Key=to,
                    CopySource={"Bucket": self.bucket, "Key": self._key(path)},
                )

            await self._in_parallel([one(path) for path in found])

        self._call(copy)

    def move_tree(self, source: str, target: str) -> None:
        """Copy, then delete: an interrupted move is copied again."""
        self.copy_tree(source, target)
        self.remove_tree(source)

    def exists(self, path: str) -> bool:
        try:
            self._call(lambda client: client.head_object(Bucket=self.bucket, Key=self._key(path)))
        except FileNotFoundError:
            return any(True for _ in self.walk(path))
        return True

    def describe(self, path: str = "") -> str:
        return f"{self.url}/{inside(path)}".rstrip("/")


def _code(error: "ClientError") -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _file(item: Mapping[str, Any]) -> FileEntry:
    return FileEntry(
        name=PurePosixPath(item["Key"]).name,
        bytes=int(item["Size"]),
        modified_ms=int(item["LastModified"].timestamp() * 1000),
    )
