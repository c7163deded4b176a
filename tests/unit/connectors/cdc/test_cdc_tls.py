"""Options of URLs and settings for encrypted connections."""

import pytest

from tidegate.databases.tls import Tls, TlsMode, from_debezium, mysql_tls


@pytest.mark.parametrize(
    ("properties", "wanted"),
    [
        ({}, Tls(TlsMode.NONE)),
        ({"useSSL": "false"}, Tls(TlsMode.NONE)),
        ({"useSSL": "true"}, Tls(TlsMode.REQUIRED)),
        ({"requireSSL": "true"}, Tls(TlsMode.REQUIRED)),
        ({"useSSL": "true", "verifyServerCertificate": "true"}, Tls(TlsMode.VERIFY_CA)),
        ({"useSSL": "true", "serverSslCert": "/ca.pem"}, Tls(TlsMode.VERIFY_CA, "/ca.pem")),
        ({"sslMode": "PREFERRED"}, Tls(TlsMode.NONE)),
        (
            {"sslMode": "VERIFY_IDENTITY", "trustCertificateKeyStoreUrl": "file:///c%20a.pem"},
            Tls(TlsMode.VERIFY_FULL, "/c a.pem"),
        ),
        (
            {"sslmode": "verify-full", "sslcert": "/c.pem", "sslkey": "/k.pem"},
            Tls(TlsMode.VERIFY_FULL, "", "/c.pem", "/k.pem"),
        ),
        ({"sslMode": "trust"}, Tls(TlsMode.REQUIRED)),
    ],
)
def test_tls_options_of_the_drivers_are_parsed(properties: dict[str, str], wanted: Tls) -> None:
    assert mysql_tls(properties) == wanted


def test_unknown_mode_is_named() -> None:
    with pytest.raises(ValueError, match="sslMode is 'often'"):
        mysql_tls({"sslMode": "often"})


def test_nested_debezium_settings_are_read() -> None:
    given = {
        "database": {"ssl": {"mode": "required"}, "history": "x"},
        "database.sslrootcert": "/ca.pem",
        "snapshot.mode": "never",
    }
    assert from_debezium(given) == {"sslmode": "required", "sslrootcert": "/ca.pem"}
    assert from_debezium(None) == {}
