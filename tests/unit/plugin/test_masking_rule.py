"""What is masked: sensitive keys, blocks with free keys, and secrets recognized by form."""

import json
from typing import Any

import pytest

from tidegate.model.problem import Location
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet
from tidegate.redact import MASK, is_delicate_line, mask_text, mask_value, secret_texts

SECRET = "Hunter2-Mark7-Xyz"
OPTIONS: dict[str, str] = {
    "spark.hadoop.fs.azure.sas.container.account": f"sv=2022-11-02&ss=b&sig={SECRET}",
    "spark.hadoop.fs.azure.account.key.acct.dfs.core.windows.net": SECRET,
    "spark.hadoop.fs.s3a.access.key": SECRET,
    "spark.hadoop.fs.gs.auth.service.account.private.key": SECRET,
    "spark.hadoop.custom.header": f"Authorization: Bearer {SECRET}",
    "spark.app.note": f"Authorization: Bearer {SECRET}",
    "spark.app.hook": f"https://hooks.slack.com/services/T0/B0/{SECRET}",
    "spark.alert.address": f"https://alerts.example/in/{SECRET}",
    "spark.alert.user": f"https://{SECRET}@alerts.example",
    "spark.anything.at.all": SECRET,
    "spark.executorEnv.DB_DSN": f"Server=db;Uid=a;Pwd={SECRET}",
    "spark.kubernetes.driverEnv.X": SECRET,
    "spark.redis.url": f"redis://:{SECRET}@cache:6379/0",
    "spark.jars.repositories": f"https://ann:{SECRET}@repo.example/m2",
    "spark.jars": f"https://repo.example/a.jar?sig={SECRET}&x=1",
    "spark.driver.extraJavaOptions": f"-Xmx1g -Dmy.thing={SECRET} -Dother='{SECRET}'",
    "spark.ssl.keyPassword": SECRET,
    "spark.sql.catalog.lake.credential": f"id:{SECRET}",
    "spark.sql.catalog.lake.header.X-Api": SECRET,
    "spark.hive.metastore.client": SECRET,
    "hadoop.fs.azure.sas.x": SECRET,
    "fs.s3a.session.token": SECRET,
    "fsspec.connection_string": f"AccountName=a;AccountKey={SECRET}",
    "headers.X-Custom": SECRET,
    "my_webhook": f"https://x.example/{SECRET}",
    "jwt": SECRET,
    "note": f"eyJhbGciOiJIUzI1NiJ9.{SECRET}.sig",
    "remark": f"curl -H 'Authorization: Basic {SECRET}='",
    "callback": f"https://discord.com/api/webhooks/1/{SECRET}",
    "link": f"https://storage.example/x?X-Amz-Signature={SECRET}&X-Amz-Date=1",
    "maps": f"https://maps.example/api?key={SECRET}",
    "pem": f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n-----END EC PRIVATE KEY-----",
    "sentence": f"login failed with password='{SECRET}' for ann",
}
SHOWN: dict[str, Any] = {
    "spark.master": "k8s://https://10.0.0.1:6443",
    "spark.executor.memory": "4g",
    "spark.sql.shuffle.partitions": "200",
    "spark.network.timeout": "120s",
    "spark.speculation": "true",
    "spark.authenticate": "true",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.sql.extensions": (
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
        "io.delta.sql.DeltaSparkSessionExtension"
    ),
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.hadoop.fs.s3a.endpoint": "http://minio:9000",
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "spark.hadoop.fs.defaultFS": "hdfs://nn:8020",
    "spark.eventLog.dir": "hdfs://nn:8020/logs",
    "spark.jars.packages": "org.postgresql:postgresql:42.7.4",
    "spark.local.dir": "/data/tmp",
    "spark.memory.fraction": "0.6",
    "spark.scheduler.mode": "FAIR",
    "job.name": "orders to lake",
    "parallelism": 4,
    "owner": "ann",
    "checkpoint.interval": 5000,
    "url": "jdbc:postgresql://db:5432/shop?sslmode=require",
    "primary_keys": ["id", "region"],
    "sasquatch": "yes",
    "author": "Ann Example",
}


@pytest.mark.parametrize("key", OPTIONS)
def test_a_secret_of_every_form_is_masked_and_hidden_in_logs(key: str) -> None:
    value = OPTIONS[key]
    for seen in (
        mask_value(key, value),
        mask_value("block", {key: [value]}),
        mask_value("custom_parameters", {"deep": {key: value}}),
    ):
        assert SECRET not in json.dumps(seen), key
        assert MASK in json.dumps(seen)
    assert any(SECRET in text for text in secret_texts({key: value}))
    assert SECRET not in mask_text(json.dumps({key: mask_value(key, value)}))


@pytest.mark.parametrize("key", SHOWN)
def test_harmless_values_stay_readable(key: str) -> None:
    assert mask_value(key, SHOWN[key]) == SHOWN[key]


def test_secret_of_the_wrong_type_is_not_in_the_message() -> None:
    options = OptionSet(
        (
            Option("properties", OptionKind.MAP, "x", secret=True),
            Option("number", OptionKind.INT, "x", secret=True),
        )
    )
    _, problems = options.read(
        Block({"properties": SECRET, "number": SECRET}, lambda _path: Location("job"), "job")
    )
    assert len(problems) == 2
    assert SECRET not in " ".join(map(str, problems))


@pytest.mark.parametrize("inner", ["x-trace", "anything", "Accept"])
def test_every_value_of_a_block_with_free_keys_is_masked(inner: str) -> None:
    for block in ("headers", "http_headers", "properties", "hadoop_conf", "spark.options"):
        assert SECRET not in json.dumps(mask_value(block, {inner: SECRET})), block
    assert mask_value("anything", {"packed-secret": "aGk="}) == MASK


@pytest.mark.parametrize(
    "text",
    [
        "checkpoint 7 completed in 12 ms at http://127.0.0.1:8080/jobs?page=2",
        "column amount: 'abc' is not a number, in /data/in/a.csv line 7",
        "unauthorized: the server refused",
        "jdbc:postgresql://user@host:5432/shop",
        "select a, b from t where a = 1 and b = 'x'",
    ],
)
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "line",
    [
        'spark.hadoop.fs.azure.sas.c.a = "x"',
        'password = "x"',
        'url = "https://ann:pw@host/x"',
        "token: abc",
        'spark.app.note = "x"',
    ],
)
def test_a_line_that_may_hold_a_secret_is_not_repeated(line: str) -> None:
    assert is_delicate_line(line)


@pytest.mark.parametrize(
    "text",
    [
        "encrypt" * 20_000,
        "://a:" * 20_000,
        "https://" * 20_000,
        "eyJ" * 20_000,
        'password="' * 20_000,
        "a" * 200_000,
        "=" * 200_000,
        "?a" * 100_000,
    ],
    ids=lambda text: text[:8],
)
def test_adversarial_text_is_masked_quickly(text: str) -> None:
    assert len(mask_text(text)) <= len(text) * 2
