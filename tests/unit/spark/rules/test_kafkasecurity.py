import pytest

from zkconsumer.spark.rules.kafkasecurity import UNDERSTOOD, JavaStore, read_security

MODULES = "org.apache.kafka.common.security"


@pytest.mark.parametrize(
    ("given", "properties"),
    [
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        (
            {"security.protocol": "SSL", "sasl.mechanism": "PLAIN"},
            {"security.protocol": "SSL", "sasl.mechanism": "PLAIN"},
        ),
        (
            {"sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required username='u' password='p';"},
            {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"},
        ),
        (
            {"sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required username='u' password='p';"},
            {"sasl.username": "u", "sasl.password": "p"},
        ),
        (
            {"sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"},
            {"sasl.mechanism": "OAUTHBEARER"},
        ),
        (
            {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required serviceName=k;"},
            {"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "k"},
        ),
        (
            {
                "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;",
                "sasl.kerberos.service.name": "k",
            },
            {"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "k"},
        ),
        ({"ssl.truststore.location": "/ca", "ssl.truststore.type": "PEM"}, {"ssl.ca.location": "/ca"}),
        (
            {"ssl.keystore.location": "/k", "ssl.keystore.type": "pem", "ssl.key.password": "p"},
            {"ssl.certificate.location": "/k", "ssl.key.password": "p"},
        ),
    ],
)
def test_security_options_are_properties_of_the_consumer(given, properties):
    options = {f"kafka.{name}": value for name, value in given.items()}
    assert options.keys() <= UNDERSTOOD
    assert read_security(options) == (properties, None, None, [])


def test_stores_of_java_are_found_with_their_passwords():
    given = {
        "kafka.ssl.truststore.location": "/t.jks",
        "kafka.ssl.keystore.location": "/k.p12",
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.password": "s3cret",
    }
    security = read_security(given)
    assert (security.trust, security.key) == (JavaStore("/t.jks"), JavaStore("/k.p12", "s3cret"))
    assert security.replaced == {"ssl.ca.location", "ssl.certificate.location"}
    assert "s3cret" not in repr(security)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("plain.PlainLoginModule required username='u';", "must have username and password"),
        ("scram.ScramLoginModule required tokenauth=true username='u' password='p';", "no delegation tokens"),
        (
            "Krb5LoginModule required keyTab='/k';",
            "set KRB5_CLIENT_KTNAME=/k for the driver, spark.executorEnv.KRB5_CLI",
        ),
        ("Krb5LoginModule required ticketCache='/c';", "set KRB5CCNAME=/c for the driver"),
        ("my.LoginModule required;", "has LoginModule, which is Java code"),
        ("PlainLoginModule", "must end with a semicolon"),
    ],
)
def test_a_login_without_equivalent_is_refused_with_what_to_write(module, expected):
    (violation,) = read_security({"kafka.sasl.jaas.config": module}).violations
    assert violation.startswith("kafka.sasl.jaas.config ")
    assert expected in violation
