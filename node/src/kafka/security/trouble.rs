//! What goes wrong with TLS, for people: what it is and what to do.

use std::io;

use tokio_rustls::rustls::{AlertDescription as Alert, CertificateError, Error};

pub const SPEAKS_TLS: &str =
    "its port may speak TLS: set security.protocol to \"ssl\" or \"sasl_ssl\"";
pub const SPEAKS_NO_TLS: &str = "its port may speak no TLS: set security.protocol to \"plaintext\" or \"sasl_plaintext\", or give the port that does";
pub const WANTS_CERTIFICATE: &str =
    "it asks for a client's certificate: give ssl.certificate.location and ssl.key.location";
pub const WANTS_SASL: &str =
    "its port may ask for SASL: set security.protocol to \"sasl_ssl\" or \"sasl_plaintext\"";

/// TLS's own error in one of the system's, if it is one.
pub fn of_tls(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Whether the other end just ended the connection.
pub fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe
    )
}

/// What an error of TLS means, where `host` was to answer, whose authorities the property `ca` names.
pub fn explain(error: &Error, host: &str, ca: &str, has_certificate: bool) -> String {
    match error {
        Error::InvalidCertificate(found) => of_certificate(found, host, ca),
        Error::AlertReceived(
            Alert::BadCertificate
            | Alert::CertificateRequired
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::UnsupportedCertificate
            | Alert::UnknownCA
            | Alert::AccessDenied,
        ) => match has_certificate {
            true => format!(
                "it does not accept our certificate ({error}): give one by ssl.certificate.location that it trusts"
            ),
            false => WANTS_CERTIFICATE.to_owned(),
        },
        Error::InvalidMessage(_) => SPEAKS_NO_TLS.to_owned(),
        Error::AlertReceived(Alert::HandshakeFailure | Alert::ProtocolVersion)
        | Error::PeerIncompatible(_) => format!(
            "it has no version or cipher of TLS in common with us ({error}): let it have TLS 1.2 or 1.3, or set reader = \
             \"librdkafka\""
        ),
        other => other.to_string(),
    }
}

fn of_certificate(found: &CertificateError, host: &str, ca: &str) -> String {
    match found {
        // The second: by another one of the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "its certificate is of no authority that is trusted here: give the authority's certificate by {ca}"
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "its certificate is not for the name {host}: reach it by a name that it is for, give it one for this name, or \
                 set ssl.endpoint.identification.algorithm to \"none\""
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired: renew it".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: look at the clocks".to_owned()
        }
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "its certificate is an authority's own (CA:TRUE), which must not speak for a broker: give it one that the authority \
             signed, or set reader = \"librdkafka\""
                .to_owned()
        }
        other => format!("its certificate cannot be trusted: {other}"),
    }
}
