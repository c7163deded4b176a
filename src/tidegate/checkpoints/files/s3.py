"""Files on S3: exclusive by conditional puts, listed page by page, in requests whose number does
not depend on what else is in the bucket.

Caller: open. s3fs finds the credentials and holds the connections; the requests are made here, so
that a precondition that does not hold, a wrong key and a server that is out of reach are told
apart. No error says more than the server's own word for it: requests carry signatures.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

from tidegate.checkpoints.files.base import FileEntry, Files, VersionedFile, inside
from tidegate.checkpoints.files.retry import (
    Patience,
    StorageRefused,
    StorageUnavailable,
    never,
    retry_unavailable,
)
from tidegate.checkpoints.files.s3_options import client_of
from tidegate.model.errors import UserError

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
AT_ONCE_MAX = 32  # requests of one call
PAGE = 1000  # objects in one answer, and in one deletion: S3's own limit
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

    def __init__(self, url: str, options: Mapping[str, str], patience: Patience = never) -> None:
        self.bucket, _, prefix = url.partition("://")[2].partition("/")
        self.prefix = prefix.strip("/")
        self.url = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        self.patience = patience
        self.fs: Any = s3fs.S3FileSystem(
            skip_instance_cache=True, use_listings_cache=False, **client_of(options).arguments
        )

    def _key(self, path: str) -> str:
        return f"{self.prefix}/{inside(path)}".strip("/")

    def _call(self, request: Callable[[Any], Awaitable[T]]) -> T:
        """Make a request, with the client, on the loop of fsspec."""

        async def made() -> T:
            return await request(await self.fs.set_session())

        def attempt() -> T:
            try:
                return sync(self.fs.loop, made)  # type: ignore[no-any-return]  # fsspec has no types
            except ClientError as error:
                raise self._refusal(error) from None
            except (NoCredentialsError, PartialCredentialsError):
                raise StorageRefused(
                    f"there are no credentials for {self.url}: set fs.s3a.access.key and"
                    " fs.s3a.secret.key, or give the host a role"
                ) from None
            except (BotoCoreError, ConnectionError, TimeoutError) as error:
                raise StorageUnavailable(
                    f"{self.url} is out of reach: {type(error).__name__}"
                ) from None

        try:
            return retry_unavailable(attempt, self.patience, self.url, self._note)
        finally:
            self._note("")

    def _note(self, trouble: str) -> None:
        self.trouble = trouble

    def _refusal(self, error: "ClientError") -> Exception:
        """What an error of the server means."""
        code, status = (
            _code(error),
            int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)),
        )
        if code in MISSING:
            return FileNotFoundError(f"{self.url}: {code}")
        if code in BUSY or status >= 500:
            return StorageUnavailable(f"{self.url} is out of reach: {code}")
        if code == "NoSuchBucket":
            return StorageRefused(
                f"there is no bucket {self.bucket}: make it, or correct s3.bucket"
            )
        return StorageRefused(
            f"{self.url} refuses a request ({code}): check the keys, their rights on this bucket,"
            " and the clock of this host"
        )

    def read(self, path: str) -> bytes:
        """All of a file; FileNotFoundError."""
        return self._get(path).data

    def _get(self, path: str) -> VersionedFile:
        async def get(client: Any) -> VersionedFile:
            answer = await client.get_object(Bucket=self.bucket, Key=self._key(path))
            async with answer["Body"] as body:
                return VersionedFile(await body.read(), answer["ETag"])

        return self._call(get)

    def write(self, path: str, data: bytes) -> None:
        """A put is whole or not there."""
        self.write_tree("", {path: data})

    def write_tree(self, path: str, files: Mapping[str, bytes]) -> None:
        async def put(client: Any) -> None:
            keys = {self._key(f"{path}/{name}".lstrip("/")): data for name, data in files.items()}
            await self._side_by_side(
                [
                    client.put_object(Bucket=self.bucket, Key=key, Body=data)
                    for key, data in keys.items()
                ]
            )

        self._call(put)

    async def _side_by_side(self, requests: list[Awaitable[Any]]) -> None:
        gate = asyncio.Semaphore(AT_ONCE_MAX)

        async def one(request: Awaitable[Any]) -> None:
            async with gate:
                await request

        await asyncio.gather(*(one(request) for request in requests))

    def create(self, path: str, data: bytes) -> bool:
        return self.replace_if(path, data, None)

    def read_versioned(self, path: str) -> VersionedFile | None:
        """The version is the ETag."""
        try:
            return self._get(path)
        except FileNotFoundError:
            return None

    def replace_if(self, path: str, data: bytes, seen: VersionedFile | None) -> bool:
        """If-Match with the ETag that was seen, or If-None-Match."""
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
        """What is in a directory, by name; nothing where it is missing."""
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
        """Take one file away; missing is fine."""
        self._call(lambda client: client.delete_object(Bucket=self.bucket, Key=self._key(path)))

    def remove_tree(self, path: str) -> None:
        """A request for every thousand."""
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
        """There are no empty directories."""

    def copy_tree(self, source: str, target: str, last: str = "_manifest.json") -> None:
        """On the server, side by side; the files of this name after all others."""
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

            await self._side_by_side([one(path) for path in found])

        self._call(copy)

    def move_tree(self, source: str, target: str) -> None:
        """Copy, then delete: what was broken off is copied again."""
        self.copy_tree(source, target)
        self.remove_tree(source)

    def exists(self, path: str) -> bool:
        """Whether there is a file, or something below."""
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
