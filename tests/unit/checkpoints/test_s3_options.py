"""What the engine's file says about S3, as a client takes it."""

import pytest

from tidegate.checkpoints.files.s3_options import S3ClientOptions, client_of


@pytest.mark.parametrize(
    ("options", "client"),
    [
        ({}, S3ClientOptions()),
        (
            {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s", "fs.s3a.session.token": "t"},
            S3ClientOptions(key="k", secret="s", token="t"),
        ),
        (
            {"fs.s3a.endpoint": "http://h:9000"},
            S3ClientOptions(endpoint="http://h:9000", region="us-east-1", path_style=True),
        ),
        (
            {"fs.s3a.endpoint": "h", "fs.s3a.connection.ssl.enabled": "False"},
            S3ClientOptions(endpoint="http://h", region="us-east-1", path_style=True),
        ),
        (
            {"fs.s3a.endpoint": "h", "fs.s3a.path.style.access": "false"},
            S3ClientOptions(endpoint="https://h", region="us-east-1"),
        ),
        (
            {"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"},
            S3ClientOptions(endpoint="https://s3.eu-west-1.amazonaws.com"),
        ),
        (
            {"fs.s3a.endpoint.region": "eu-west-1", "fs.s3a.path.style.access": "true"},
            S3ClientOptions(region="eu-west-1", path_style=True),
        ),
        (
            {
                "fs.s3a.aws.credentials.provider": (
                    "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
                )
            },
            S3ClientOptions(anonymous=True),
        ),
    ],
)
def test_options_of_seatunnel_configure_a_client(
    options: dict[str, str], client: S3ClientOptions
) -> None:
    assert client_of(options) == client


def test_repr_of_client_options_contains_no_secret() -> None:
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
