use super::*;

fn read(properties: &[(&str, &str)]) -> Result<Security, String> {
    let mut read = Properties::default();
    for (name, value) in properties {
        let done = read.set(name, value);
        let done = done.unwrap_or_else(|| panic!("{name} is not known"));
        done.map_err(|reason| format!("{name}: {reason}"))?;
    }
    read.finish()
        .map_err(|(name, reason)| format!("{name}: {reason}"))
}

fn refused(properties: &[(&str, &str)], with: &str) {
    let reason = read(properties).unwrap_err();
    assert!(reason.contains(with), "{reason}");
}

#[test]
fn what_is_set_fits_together() {
    assert!(read(&[]).unwrap().tls.is_none());
    let plain = read(&[("security.protocol", "PLAINTEXT")]).unwrap();
    assert!(plain.tls.is_none() && plain.sasl.is_none());
    let tls = read(&[
        ("security.protocol", "SSL"),
        ("ssl.ca.location", "/etc/ca.pem"),
        ("ssl.certificate.pem", "x"),
        ("ssl.key.location", "/etc/key.pem"),
    ]);
    let tls = tls.unwrap();
    assert!(tls.tls.unwrap().has_certificate() && tls.sasl.is_none());
    let both = read(&[
        ("security.protocol", "sasl_ssl"),
        ("sasl.mechanisms", "SCRAM-SHA-512"),
        ("sasl.username", "me"),
        ("sasl.password", "hunter2"),
    ]);
    let both = both.unwrap();
    assert!(both.tls.is_some());
    assert!(!format!("{both:?}").contains("hunter2"), "{both:?}");
    assert_eq!(both.sasl.unwrap().mechanism().name(), "SCRAM-SHA-512");
}

#[test]
fn names_and_chains_are_checked_unless_it_is_said_otherwise() {
    let check = |more: &[(&str, &str)]| {
        let all = [&[("security.protocol", "ssl")], more].concat();
        read(&all).unwrap().tls.unwrap().check
    };
    let name = "ssl.endpoint.identification.algorithm";
    let chain = "enable.ssl.certificate.verification";
    assert_eq!(check(&[]), Check::Full);
    assert_eq!(check(&[(name, "https"), (chain, "true")]), Check::Full);
    assert_eq!(check(&[(name, "none")]), Check::AnyName);
    assert_eq!(check(&[(name, "none"), (chain, "false")]), Check::Nothing);
    refused(&[(name, "maybe")], "must be one of https, none");
}

#[test]
fn what_lacks_or_means_nothing_is_said() {
    let sasl = ("security.protocol", "sasl_ssl");
    refused(
        &[("security.protocol", "tls")],
        "must be one of plaintext, ssl",
    );
    refused(
        &[("sasl.password", "x")],
        "sasl.password: has a meaning with SASL",
    );
    refused(&[("ssl.ca.pem", "x")], "ssl.ca.pem: has a meaning with TLS");
    refused(
        &[sasl],
        "sasl.mechanism: is needed with SASL; write one of PLAIN",
    );
    refused(&[("sasl.mechanism", "GSSAPI")], "reader = \"librdkafka\"");
    refused(
        &[sasl, ("sasl.mechanism", "PLAIN"), ("sasl.username", "me")],
        "sasl.password: is needed with PLAIN",
    );
    refused(
        &[("security.protocol", "ssl"), ("ssl.certificate.pem", "x")],
        "ssl.key.location: is needed",
    );
    refused(
        &[("ssl.ca.pem", "x"), ("ssl.ca.location", "y")],
        "says what ssl.ca.pem says; keep one",
    );
    let bearer = ("sasl.mechanism", "OAUTHBEARER");
    refused(&[sasl, bearer], "sasl.oauthbearer.method: is needed");
    refused(
        &[sasl, bearer, ("sasl.oauthbearer.method", "oidc")],
        "sasl.oauthbearer.token.endpoint.url: is needed",
    );
}

#[test]
fn what_cannot_be_read_is_said_with_its_property() {
    let config = |properties: &[(&str, &str)]| {
        let all = [&[("security.protocol", "ssl")], properties].concat();
        let tls = read(&all).unwrap().tls.unwrap();
        tls.config().map(drop).unwrap_err()
    };
    let missing = config(&[("ssl.ca.location", "/no/such/file")]);
    assert!(
        missing.contains("ssl.ca.location: /no/such/file cannot be read"),
        "{missing}"
    );
    let none = config(&[("ssl.ca.pem", "x")]);
    assert!(none.contains("ssl.ca.pem: holds no certificate"), "{none}");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_string_lossy();
    let none = config(&[("ssl.ca.location", &dir)]);
    assert!(
        none.contains("ssl.ca.location: holds no certificate"),
        "{none}"
    );
}
