"""What the engine's file says about S3, as a client takes it."""

import pytest

from tidegate.checkpoints.s3_options import Client, client_of


@pytest.mark.parametrize(
    ("options", "client"),
    [
        ({}, Client()),
        (
            {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s", "fs.s3a.session.token": "t"},
            Client(key="k", secret="s", token="t"),
        ),
        (
            {"fs.s3a.endpoint": "http://h:9000"},
            Client(endpoint="http://h:9000", region="us-east-1", path_style=True),
        ),
        (
            {"fs.s3a.endpoint": "h", "fs.s3a.connection.ssl.enabled": "False"},
            Client(endpoint="http://h", region="us-east-1", path_style=True),
        ),
        (
            {"fs.s3a.endpoint": "h", "fs.s3a.path.style.access": "false"},
            Client(endpoint="https://h", region="us-east-1"),
        ),
        (
            {"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"},
            Client(endpoint="https://s3.eu-west-1.amazonaws.com"),
        ),
        (
            {"fs.s3a.endpoint.region": "eu-west-1", "fs.s3a.path.style.access": "true"},
            Client(region="eu-west-1", path_style=True),
        ),
        (
            {
                "fs.s3a.aws.credentials.provider": (
                    "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
                )
            },
            Client(anonymous=True),
        ),
    ],
)
def test_options_of_the_reference_mean_a_client(options: dict[str, str], client: Client) -> None:
    assert client_of(options) == client


def test_what_is_printed_of_a_client_tells_no_secret() -> None:
    assert "hunter2" not in repr(
        client_of(
            {
                "fs.s3a.access.key": "hunter2",
                "fs.s3a.secret.key": "hunter2",
                "fs.s3a.session.token": "hunter2",
            }
        )
    )


def test_without_keys_the_hosts_own_are_used() -> None:
    arguments = client_of({}).arguments
    assert (
        arguments["key"],
        arguments["secret"],
        arguments["token"],
        arguments["anon"],
        arguments["client_kwargs"],
    ) == (None, None, None, False, {})
